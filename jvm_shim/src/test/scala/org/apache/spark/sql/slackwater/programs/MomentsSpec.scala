package org.apache.spark.sql.slackwater.programs

import java.math.{BigDecimal, BigInteger, MathContext}

import org.scalacheck.Gen
import org.scalatest.funsuite.AnyFunSuite
import org.scalatestplus.scalacheck.ScalaCheckPropertyChecks

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.BoundReference
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.types.DoubleType

final class MomentsSpec extends AnyFunSuite with ScalaCheckPropertyChecks {
  private val finite = Gen.oneOf(
    Gen.choose(-1e3, 1e3),
    Gen.choose(-100, 100).map(_.toDouble),
    Gen.oneOf(0.0, -0.0, Double.MinPositiveValue, 1e300, -1e300, 0.1, Double.MaxValue)
  )
  private val number = BoundReference(0, DoubleType, nullable = true)
  private val pair = (number, BoundReference(1, DoubleType, nullable = true))
  private val functions: Seq[AggregateFunction] = Seq(
    VariancePop(number),
    StddevSamp(number),
    Skewness(number),
    Kurtosis(number),
    CovPopulation(pair._1, pair._2),
    Corr(pair._1, pair._2),
    RegrSlope(pair._1, pair._2),
    RegrIntercept(pair._1, pair._2),
    Average(number)
  )

  test("a quotient is the double that is nearest to it") {
    forAll(finite, Gen.choose(1L, Long.MaxValue)) { (value, divisor) =>
      val by = BigInteger.valueOf(divisor)
      val wanted = new BigDecimal(value).divide(new BigDecimal(by), new MathContext(1200))
      assert(Dyadic.of(value).dividedBy(by) == wanted.doubleValue)
      assert(Dyadic.of(value).toDouble == value)
    }
  }

  test("what is taken away, and the order, leave no trace") {
    val rows = Gen.listOf(Gen.zip(Gen.option(finite), Gen.option(finite)))
    forAll(Gen.oneOf(functions), rows, rows) { (function, stays, goes) =>
      val accumulated = Accumulated.of(function, None, identity)
      def state(updates: Seq[((Option[Double], Option[Double]), Long)]): (Seq[Byte], Any) = {
        val accumulator = accumulated.start()
        updates.foreach { case ((x, y), diff) =>
          val value = accumulated.input.eval(InternalRow(x.orNull, y.orNull))
          accumulator.add(InternalRow(value), 0, diff)
        }
        (new GroupAccumulators(Array(accumulator)).state.toSeq, accumulator.result)
      }
      val left = state(stays.map(_ -> 1L))
      val mixed = (goes.map(_ -> 2L) ++ stays.reverse.map(_ -> 1L)) ++ goes.reverse.map(_ -> -2L)
      assert(left._1 == state(mixed)._1)
      assert(String.valueOf(left._2) == String.valueOf(state(mixed)._2))
    }
  }

  test("of what is not finite nothing is left when it goes") {
    val accumulator = Accumulated.of(VariancePop(number), None, identity).start()
    Seq(1.0, 3.0, Double.NaN, Double.PositiveInfinity).foreach { value =>
      accumulator.add(InternalRow(value), 0, 1L)
    }
    assert(accumulator.result.asInstanceOf[Double].isNaN)
    Seq(Double.NaN, Double.PositiveInfinity).foreach { value =>
      accumulator.add(InternalRow(value), 0, -1L)
    }
    assert(accumulator.result == 1.0)
  }

  test("a variance far from zero is exact") {
    val accumulator = Accumulated.of(VariancePop(number), None, identity).start()
    Seq(1e15, 1e15 + 1, 1e15 + 2).foreach(v => accumulator.add(InternalRow(v), 0, 1L))
    assert(accumulator.result == 2.0 / 3.0)
  }
}
