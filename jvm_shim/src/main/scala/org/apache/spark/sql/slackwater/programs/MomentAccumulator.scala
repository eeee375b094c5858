package org.apache.spark.sql.slackwater.programs

import java.io.{DataInputStream, DataOutputStream}
import java.math.BigInteger

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.slackwater.plans.expressions.Moments

/** Exact sums of products, of which the moments about the mean are exact as well: each is rounded
  * once, and does not depend on what was in the group before.
  *
  * @param finish
  *   the result out of the moments, by the names that the buffers of Spark's functions have
  */
private[slackwater] final class MomentAccumulator(
    moments: Moments,
    finish: (String => Double) => Any
) extends Accumulator {
  private val sums = Array.fill(moments.powers.size)(Dyadic.zero)
  private var notFinite = 0L

  override protected def addValue(row: InternalRow, at: Int, diff: Long): Unit = {
    val (first, second) =
      if (moments.isPair) {
        val pair = row.getStruct(at, 2)
        (pair.getDouble(0), pair.getDouble(1))
      } else (row.getDouble(at), 0.0)
    if (java.lang.Double.isFinite(first) && java.lang.Double.isFinite(second)) {
      val (x, y) = if (moments.isTurned) (second, first) else (first, second)
      addFinite(Dyadic.of(x), Dyadic.of(y), diff)
    } else notFinite += diff
  }

  private def addFinite(x: Dyadic, y: Dyadic, diff: Long): Unit =
    moments.powers.zipWithIndex.foreach { case ((ofX, ofY), i) =>
      val factors = Iterator.fill(ofX)(x) ++ Iterator.fill(ofY)(y)
      sums(i) = sums(i) + factors.reduce(_ * _) * diff
    }

  override protected def mergeValue(other: Accumulator): Unit = {
    val more = other.asInstanceOf[MomentAccumulator]
    sums.indices.foreach(i => sums(i) = sums(i) + more.sums(i))
    notFinite += more.notFinite
  }

  override protected def writeValue(out: DataOutputStream): Unit = {
    sums.foreach(_.write(out))
    out.writeLong(notFinite)
  }

  override protected def readValue(in: DataInputStream): Unit = {
    sums.indices.foreach(i => sums(i) = Dyadic.read(in))
    notFinite = in.readLong()
  }

  override def result: Any = finish(moment)

  private def moment(name: String): Double =
    if (name == "n") values.toDouble
    else if (values == 0) 0.0
    else if (notFinite != 0) Double.NaN
    else
      name match {
        case "avg" | "xAvg" => sum(1, 0).dividedBy(n(1))
        case "yAvg"         => sum(0, 1).dividedBy(n(1))
        case "m2" | "xMk"   => ofProducts(sum(2, 0), sum(1, 0), sum(1, 0))
        case "yMk"          => ofProducts(sum(0, 2), sum(0, 1), sum(0, 1))
        case "ck"           => ofProducts(sum(1, 1), sum(1, 0), sum(0, 1))
        case "m3"           => third
        case "m4"           => fourth
      }

  private def sum(ofX: Int, ofY: Int): Dyadic = sums(moments.powers.indexOf((ofX, ofY)))

  private def n(power: Int): BigInteger = BigInteger.valueOf(values).pow(power)

  private def times(power: Int): Dyadic = Dyadic(n(power), 0)

  /** `sum((x - avg(x)) * (y - avg(y))) = (n * sum(x * y) - sum(x) * sum(y)) / n` */
  private def ofProducts(products: Dyadic, one: Dyadic, other: Dyadic): Double =
    (times(1) * products - one * other).dividedBy(n(1))

  /** `sum((x - avg(x))^3)`, multiplied out; so the next one. */
  private def third: Double = {
    val Seq(s1, s2, s3) = (1 to 3).map(sum(_, 0))
    (times(2) * s3 - times(1) * s1 * s2 * 3L + s1 * s1 * s1 * 2L).dividedBy(n(2))
  }

  private def fourth: Double = {
    val Seq(s1, s2, s3, s4) = (1 to 4).map(sum(_, 0))
    val squared = s1 * s1
    (times(3) * s4 - times(2) * s1 * s3 * 4L + times(
      1
    ) * squared * s2 * 6L - squared * squared * 3L)
      .dividedBy(n(3))
  }
}
