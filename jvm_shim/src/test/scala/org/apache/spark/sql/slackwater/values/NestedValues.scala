package org.apache.spark.sql.slackwater.values

import org.scalacheck.Gen

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.catalyst.util.{ArrayBasedMapData, ArrayData, GenericArrayData, MapData}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Types of any depth, values of them, and what these values are, whatever their form. */
private[values] object NestedValues {
  private val lower: StringType = StringType("UTF8_LCASE")

  /** Lengths on both sides of each at which a row's buffer is exactly full. */
  private val texts: Gen[String] = Gen.choose(0, 40).flatMap(n => Gen.stringOfN(n, letters))
  private def letters: Gen[Char] = Gen.oneOf('a', 'A', 'b', 'B', '\u00e4')

  private val doubles: Gen[Double] = Gen.oneOf(
    Gen.oneOf(0.0, -0.0, Double.NaN, Double.NegativeInfinity, 0.1),
    Gen.const(java.lang.Double.longBitsToDouble(0xfff8000000000001L)),
    Gen.choose(-3.0, 3.0)
  )

  private val leaves: Gen[DataType] = Gen.oneOf(
    Seq[DataType](
      IntegerType,
      LongType,
      BooleanType,
      FloatType,
      DoubleType,
      StringType,
      lower,
      BinaryType,
      DateType,
      DecimalType(9, 2),
      DecimalType(38, 9)
    )
  )

  def types(depth: Int, ofKey: Boolean = false): Gen[DataType] =
    if (depth == 0) leaves
    else {
      val inner = types(depth - 1, ofKey)
      val list = inner.map(ArrayType(_, containsNull = true))
      // Two fields may have one name.
      val struct = Gen.choose(0, 3).flatMap(n => Gen.listOfN(n, inner)).map { kinds =>
        StructType(kinds.map(StructField("f", _)))
      }
      val map = Gen.zip(types(math.min(1, depth - 1), ofKey = true), inner).map { case (k, v) =>
        MapType(k, v, valueContainsNull = true)
      }
      if (ofKey) Gen.oneOf(leaves, list, struct)
      else Gen.frequency(1 -> leaves, 2 -> list, 2 -> struct, 4 -> map)
    }

  def values(dataType: DataType): Gen[Any] =
    Gen.frequency(1 -> Gen.const(null), 6 -> present(dataType))

  private def present(dataType: DataType): Gen[Any] = dataType match {
    case IntegerType | DateType => Gen.choose(-2, 2)
    case LongType               => Gen.choose(-2L, 2L)
    case BooleanType            => Gen.oneOf(true, false)
    case FloatType              => doubles.map(_.toFloat)
    case DoubleType             => doubles
    case _: StringType          => texts.map(UTF8String.fromString)
    case BinaryType             => texts.map(_.getBytes("UTF-8"))
    case of: DecimalType        =>
      Gen.choose(-9L, 9L).map(n => Decimal(BigDecimal(n), of.precision, of.scale))
    case ArrayType(of, _) => few(values(of)).map(all => new GenericArrayData(all.toArray[Any]))
    case of: StructType   =>
      Gen.sequence[Seq[Any], Any](of.map(f => values(f.dataType))).map(row)
    case MapType(k, v, _) =>
      few(Gen.zip(present(k), values(v))).map { entries =>
        map(entries.distinctBy(entry => same(entry._1, k, ofKey = true)))
      }
  }

  private def few[A](each: Gen[A]): Gen[Seq[A]] =
    Gen.choose(0, 4).flatMap(n => Gen.listOfN(n, each))

  def row(fields: Seq[Any]): InternalRow = new GenericInternalRow(fields.toArray[Any])

  def map(entries: Seq[(Any, Any)]): MapData = new ArrayBasedMapData(
    new GenericArrayData(entries.map(_._1).toArray[Any]),
    new GenericArrayData(entries.map(_._2).toArray[Any])
  )

  /** What a value is: the same for the same values. `ofKey`: as a collation compares texts. */
  def same(value: Any, dataType: DataType, ofKey: Boolean): Any = (value, dataType) match {
    case (null, _)                             => None
    case (number: Double, _)                   => if (number.isNaN) "NaN" else number + 0.0
    case (number: Float, _)                    => if (number.isNaN) "NaN" else number + 0.0f
    case (text: UTF8String, `lower`) if ofKey  => text.toString.toLowerCase(java.util.Locale.ROOT)
    case (bytes: Array[Byte], _)               => bytes.toSeq
    case (list: ArrayData, ArrayType(of, _))   => listed(list, of).map(same(_, of, ofKey))
    case (fields: InternalRow, of: StructType) =>
      of.fields.toSeq.zipWithIndex.map { case (f, i) =>
        same(fields.get(i, f.dataType), f.dataType, ofKey)
      }
    case (entries: MapData, MapType(k, v, _)) =>
      val keys = listed(entries.keyArray(), k).map(same(_, k, ofKey))
      "map" -> keys.zip(listed(entries.valueArray(), v).map(same(_, v, ofKey))).toSet
    case (other, _) => other
  }

  /** The value in another form: other zeros, other NaN, entries the other way round. */
  def turned(value: Any, dataType: DataType, ofKey: Boolean): Any = (value, dataType) match {
    case (null, _)                                     => null
    case (number: Double, DoubleType) if number == 0.0 => -number
    case (number: Double, DoubleType) if number.isNaN  =>
      java.lang.Double.longBitsToDouble(0x7ff8000000000077L)
    case (number: Float, FloatType) if number == 0.0f => -number
    case (text: UTF8String, `lower`) if ofKey         => text.toUpperCase
    case (list: ArrayData, ArrayType(of, _))          =>
      new GenericArrayData(listed(list, of).map(turned(_, of, ofKey)).toArray[Any])
    case (fields: InternalRow, of: StructType) =>
      row(of.fields.toSeq.zipWithIndex.map { case (f, i) =>
        turned(fields.get(i, f.dataType), f.dataType, ofKey)
      })
    case (entries: MapData, MapType(k, v, _)) =>
      val keys = listed(entries.keyArray(), k).map(turned(_, k, ofKey))
      map(keys.zip(listed(entries.valueArray(), v).map(turned(_, v, ofKey))).reverse)
    case (other, _) => other
  }

  private def listed(list: ArrayData, of: DataType): Seq[Any] =
    (0 until list.numElements()).map(i => if (list.isNullAt(i)) null else list.get(i, of))
}
