package org.apache.spark.sql.slackwater.values

import java.util.Locale

import org.scalacheck.Gen
import org.scalatest.funsuite.AnyFunSuite
import org.scalatestplus.scalacheck.ScalaCheckPropertyChecks

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  BoundReference,
  Expression,
  InterpretedUnsafeProjection,
  UnsafeRow
}
import org.apache.spark.sql.catalyst.util.GenericArrayData
import org.apache.spark.sql.slackwater.values.NestedValues._
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

final class ValuesSpec extends AnyFunSuite with ScalaCheckPropertyChecks {
  implicit override val generatorDrivenConfig: PropertyCheckConfiguration =
    PropertyCheckConfiguration(minSuccessful = 400)

  private def reference(dataType: DataType): Expression =
    BoundReference(0, dataType, nullable = true)

  /** A row of one value, as an operator hands it on. */
  private def stored(value: Any, dataType: DataType): InternalRow =
    InterpretedUnsafeProjection.createProjection(Seq(reference(dataType)))(row(Seq(value))).copy()

  /** The bytes that an expression over a value has in a row. */
  private def bytes(of: Expression => Expression, value: Any, dataType: DataType): Seq[Byte] =
    InterpretedUnsafeProjection
      .createProjection(Seq(of(reference(dataType))))(stored(value, dataType))
      .copy()
      .getBytes
      .toSeq

  private val typed: Gen[(DataType, Any, Any)] = for {
    dataType <- Gen.choose(0, 4).flatMap(types(_))
    left <- values(dataType)
    right <- values(dataType)
  } yield (dataType, left, right)

  test("bytes that were handed out stay what they are") {
    val collated = StringType("UTF8_LCASE")
    val pair = StructType(Seq(StructField("a", collated), StructField("b", IntegerType)))
    val kinds = Seq[(DataType, UTF8String => Any)](
      collated -> identity,
      BinaryType -> (_.getBytes),
      pair -> (text => row(Seq(text, 1))),
      ArrayType(collated) -> (text => new GenericArrayData(Array[Any](text, null))),
      MapType(collated, IntegerType) -> (text =>
        map(Seq(text -> 1, UTF8String.fromString("k") -> 2))
      )
    )
    for {
      (dataType, made) <- kinds
      beside <- Seq(Nil, Seq(DoubleType), Seq(DoubleType, LongType))
      length <- 0 to 130
    } {
      val types = dataType +: beside
      val bytes = RowBytes(types.zipWithIndex.map { case (t, i) => BoundReference(i, t, true) })
      def of(letter: String): Array[Byte] = {
        val text = UTF8String.fromString(letter * length)
        bytes
          .eval(
            row(made(text) +: beside.map(Map[DataType, Any](DoubleType -> 1.0, LongType -> 1L)))
          )
          .asInstanceOf[Array[Byte]]
      }
      val first = of("x")
      val before = first.toSeq
      val second = of("y")
      assert(first.toSeq == before, (dataType, beside.size, length))
      assert(length == 0 || first.toSeq != second.toSeq, (dataType, beside.size, length))
    }
  }

  test("values that are the same have one form, and it is the value") {
    forAll(typed) { case (dataType, value, _) =>
      val other = turned(value, dataType, ofKey = false)
      assert(bytes(Canonical(_), value, dataType) == bytes(Canonical(_), other, dataType))
      val form = InterpretedUnsafeProjection
        .createProjection(Seq(Canonical(reference(dataType))))(stored(value, dataType))
        .get(0, dataType)
      assert(same(form, dataType, ofKey = false) == same(value, dataType, ofKey = false))
    }
  }

  test("bytes of rows are equal for the same values and no others") {
    forAll(typed) { case (dataType, left, right) =>
      def of(value: Any): Seq[Byte] = bytes(v => RowBytes(Seq(v)), value, dataType)
      assert(of(left) == of(turned(left, dataType, ofKey = false)))
      val areSame = same(left, dataType, ofKey = false) == same(right, dataType, ofKey = false)
      assert((of(left) == of(right)) == areSame)
    }
  }

  test("keys have equal bytes for equal values and no others") {
    forAll(typed) { case (dataType, left, right) =>
      whenever(Keys.isMade(reference(dataType))) {
        def of(value: Any): Seq[Byte] =
          bytes(v => Canonical(Keys.of(v)), value, dataType)
        assert(of(left) == of(turned(left, dataType, ofKey = true)))
        val areEqual = same(left, dataType, ofKey = true) == same(right, dataType, ofKey = true)
        assert((of(left) == of(right)) == areEqual)
      }
    }
  }

  test("columns that Spark takes for ours have other names in files") {
    val ours = Seq(Stored.Time, Stored.Diff)
    val near = for {
      base <- Seq("__time", "__DIFF", "__t\u0131me", "__d\u0130ff", "__row", "time", "a", "")
      quotes <- 0 to 3
    } yield base + "'" * quotes
    near.foreach { name =>
      val isOurs = ours.exists(_.equalsIgnoreCase(name.takeWhile(_ != '\'')))
      assert(Stored.column(name) == (if (isOurs) s"$name'" else name))
    }
    val stored = near.map(Stored.column)
    assert(stored.distinct == stored)
    assert(!stored.exists(name => ours.exists(_.equalsIgnoreCase(name))))
  }

  test("a value comes back out of the form in which it is stored") {
    forAll(typed) { case (dataType, value, _) =>
      val form = Stored.dataType(dataType)
      form.existsRecursively {
        case struct: StructType =>
          val names = struct.fieldNames.map(_.toLowerCase(Locale.ROOT))
          assert(names.nonEmpty && names.distinct.length == names.length)
          false
        case _ => false
      }
      val there = InterpretedUnsafeProjection
        .createProjection(Seq(Stored.of(reference(dataType))))(stored(value, dataType))
        .copy()
      val back = Stored.restored(reference(form), dataType)
      assert(back.dataType == dataType)
      val again = InterpretedUnsafeProjection.createProjection(Seq(back))(there).copy()
      assert(again.getBytes.toSeq == stored(value, dataType).asInstanceOf[UnsafeRow].getBytes.toSeq)
    }
  }
}
