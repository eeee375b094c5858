package org.apache.spark.sql.slackwater.programs

import java.io.{DataInputStream, DataOutputStream}
import java.math.BigInteger

/** The number `mantissa * 2^exponent`, exactly: every finite double is one, and so is each sum and
  * product of them.
  */
private[slackwater] final case class Dyadic(mantissa: BigInteger, exponent: Int) {
  import Dyadic._

  def isZero: Boolean = mantissa.signum == 0

  def +(other: Dyadic): Dyadic =
    if (other.isZero) this
    else if (isZero) other
    else if (other.exponent >= exponent)
      Dyadic(mantissa.add(other.mantissa.shiftLeft(other.exponent - exponent)), exponent)
    else other + this

  def -(other: Dyadic): Dyadic = this + Dyadic(other.mantissa.negate, other.exponent)

  def *(other: Dyadic): Dyadic =
    Dyadic(mantissa.multiply(other.mantissa), exponent + other.exponent)

  def *(times: Long): Dyadic =
    if (times == 1) this else Dyadic(mantissa.multiply(BigInteger.valueOf(times)), exponent)

  /** The nearest double; the even one of two. */
  def toDouble: Double = if (isZero) 0.0
  else {
    val size = mantissa.abs
    val last = math.max(size.bitLength + exponent - precision, lowest)
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

  /** The double that is nearest to the quotient by a number greater than zero. */
  def dividedBy(divisor: BigInteger): Double = {
    val more = math.max(0, divisor.bitLength + precision + 2 - mantissa.bitLength)
    val parts = mantissa.abs.shiftLeft(more).divideAndRemainder(divisor)
    // What is left over is less than the last bit, and decides on which side of a middle this is.
    val bits = parts(0).shiftLeft(1)
    val size = if (parts(1).signum == 0) bits else bits.setBit(0)
    Dyadic(if (mantissa.signum < 0) size.negate else size, exponent - more - 1).toDouble
  }

  /** The same number always writes the same bytes. */
  def write(out: DataOutputStream): Unit = {
    val zeros = math.max(mantissa.getLowestSetBit, 0)
    val bytes = mantissa.shiftRight(zeros).toByteArray
    out.writeInt(bytes.length)
    out.write(bytes)
    out.writeInt(if (isZero) 0 else exponent + zeros)
  }
}

private[slackwater] object Dyadic {

  /** What the exponent of a double's lowest bit is less than its biased one. */
  private val bias = 1075

  /** The exponent of the lowest bit of all doubles. */
  private val lowest = -1074

  /** The bits of a double. */
  private val precision = 53

  val zero: Dyadic = Dyadic(BigInteger.ZERO, 0)

  /** `value` is finite. */
  def of(value: Double): Dyadic =
    if (value == 0.0) zero
    else {
      val bits = java.lang.Double.doubleToLongBits(value)
      val biased = ((bits >>> 52) & 0x7ffL).toInt
      val fraction = bits & 0xfffffffffffffL
      val size = if (biased == 0) fraction else fraction | (1L << 52)
      Dyadic(BigInteger.valueOf(if (bits < 0) -size else size), math.max(biased, 1) - bias)
    }

  def read(in: DataInputStream): Dyadic =
    Dyadic(new BigInteger(in.readNBytes(in.readInt())), in.readInt())
}
