package org.apache.spark.sql.slackwater.programs

import java.io.{DataInputStream, DataOutputStream}

/** The exact sum of doubles, each with a multiplicity, and how many of them are not finite. It does
  * not depend on the order, and what was added can be taken away.
  *
  * `value` is that sum, rounded once, to the nearest double and to the even one of two.
  */
private[slackwater] final class ExactSum {
  private var finite = Dyadic.zero
  private var nans = 0L
  private var positive = 0L
  private var negative = 0L

  def add(value: Double, times: Long): Unit =
    if (value.isNaN) nans += times
    else if (value == Double.PositiveInfinity) positive += times
    else if (value == Double.NegativeInfinity) negative += times
    else finite += Dyadic.of(value) * times

  def add(other: ExactSum): Unit = {
    finite += other.finite
    nans += other.nans
    positive += other.positive
    negative += other.negative
  }

  def value: Double =
    if (nans > 0 || (positive > 0 && negative > 0)) Double.NaN
    else if (positive > 0) Double.PositiveInfinity
    else if (negative > 0) Double.NegativeInfinity
    else finite.toDouble

  def write(out: DataOutputStream): Unit = {
    finite.write(out)
    out.writeLong(nans)
    out.writeLong(positive)
    out.writeLong(negative)
  }
}

private[slackwater] object ExactSum {
  def read(in: DataInputStream): ExactSum = {
    val sum = new ExactSum
    sum.finite = Dyadic.read(in)
    sum.nans = in.readLong()
    sum.positive = in.readLong()
    sum.negative = in.readLong()
    sum
  }
}
