package org.apache.spark.sql.slackwater.programs

import java.math.BigInteger

/** The exact sum of doubles, each with a multiplicity: `mantissa * 2^exponent`, and how many of it
  * are not finite. It does not depend on the order, and what was added can be taken away.
  *
  * `value` is that sum, rounded once, to the nearest double and to the even one of two.
  */
private[slackwater] final class ExactSum {
  private var mantissa = BigInteger.ZERO
  private var exponent = 0
  private var nans = 0L
  private var positive = 0L
  private var negative = 0L

  def add(value: Double, times: Long): Unit =
    if (value.isNaN) nans += times
    else if (value == Double.PositiveInfinity) positive += times
    else if (value == Double.NegativeInfinity) negative += times
    else if (value != 0.0) {
      val bits = java.lang.Double.doubleToLongBits(value)
      val biased = ((bits >>> 52) & 0x7ffL).toInt
      val fraction = bits & 0xfffffffffffffL
      val size = if (biased == 0) fraction else fraction | (1L << 52)
      val signed = BigInteger.valueOf(if (bits < 0) -size else size)
      val product = if (times == 1) signed else signed.multiply(BigInteger.valueOf(times))
      plus(product, math.max(biased, 1) - ExactSum.bias)
    }

  def add(other: ExactSum): Unit = {
    plus(other.mantissa, other.exponent)
    nans += other.nans
    positive += other.positive
    negative += other.negative
  }

  private def plus(amount: BigInteger, at: Int): Unit =
    if (amount.signum != 0) {
      if (mantissa.signum == 0) {
        mantissa = amount
        exponent = at
      } else if (at >= exponent) mantissa = mantissa.add(amount.shiftLeft(at - exponent))
      else {
        mantissa = mantissa.shiftLeft(exponent - at).add(amount)
        exponent = at
      }
    }

  def value: Double =
    if (nans > 0 || (positive > 0 && negative > 0)) Double.NaN
    else if (positive > 0) Double.PositiveInfinity
    else if (negative > 0) Double.NegativeInfinity
    else if (mantissa.signum == 0) 0.0
    else rounded

  private def rounded: Double = {
    val size = mantissa.abs
    val last = math.max(size.bitLength + exponent - 53, ExactSum.lowest)
    val dropped = last - exponent
    val kept =
      if (dropped <= 0) size.shiftLeft(-dropped)
      else {
        val whole = size.shiftRight(dropped)
        val half = size.testBit(dropped - 1)
        val more = half && size.getLowestSetBit < dropped - 1
        if (half && (more || whole.testBit(0))) whole.add(BigInteger.ONE) else whole
      }
    val result = Math.scalb(kept.longValueExact.toDouble, last)
    if (mantissa.signum < 0) -result else result
  }

  /** The same sum always gives the same fields. */
  def fields: (Array[Byte], Int, Long, Long, Long) = {
    if (mantissa.signum == 0) exponent = 0
    else {
      val zeros = mantissa.getLowestSetBit
      mantissa = mantissa.shiftRight(zeros)
      exponent += zeros
    }
    (mantissa.toByteArray, exponent, nans, positive, negative)
  }
}

private[slackwater] object ExactSum {

  /** What the exponent of a double's lowest bit is less than its biased one. */
  private val bias = 1075

  /** The exponent of the lowest bit of all doubles. */
  private val lowest = -1074

  def of(
      mantissa: Array[Byte],
      exponent: Int,
      nans: Long,
      positive: Long,
      negative: Long
  ): ExactSum = {
    val sum = new ExactSum
    sum.mantissa = new BigInteger(mantissa)
    sum.exponent = exponent
    sum.nans = nans
    sum.positive = positive
    sum.negative = negative
    sum
  }
}
