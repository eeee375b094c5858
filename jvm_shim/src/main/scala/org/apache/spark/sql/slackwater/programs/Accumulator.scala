package org.apache.spark.sql.slackwater.programs

import java.io.{DataInputStream, DataOutputStream}
import java.math.BigInteger

import org.apache.spark.sql.catalyst.InternalRow

/** What is known of one aggregate of one group: what comes can also be taken away.
  *
  * `values` is how many of the group's rows have a value, each as often as it is there.
  */
private[slackwater] abstract class Accumulator {
  protected var values = 0L

  /** Takes the field `at` of a row in, `diff` times. */
  final def add(row: InternalRow, at: Int, diff: Long): Unit =
    if (!row.isNullAt(at)) {
      values = Math.addExact(values, diff)
      addValue(row, at, diff)
    }

  final def merge(other: Accumulator): Unit = {
    values = Math.addExact(values, other.values)
    mergeValue(other)
  }

  final def write(out: DataOutputStream): Unit = {
    out.writeLong(values)
    writeValue(out)
  }

  final def read(in: DataInputStream): Unit = {
    values = in.readLong()
    readValue(in)
  }

  protected def addValue(row: InternalRow, at: Int, diff: Long): Unit
  protected def mergeValue(other: Accumulator): Unit
  protected def writeValue(out: DataOutputStream): Unit
  protected def readValue(in: DataInputStream): Unit

  /** The aggregate, in Spark's internal form; null for NULL. */
  def result: Any
}

private[slackwater] final class CountAccumulator extends Accumulator {
  override protected def addValue(row: InternalRow, at: Int, diff: Long): Unit = ()
  override protected def mergeValue(other: Accumulator): Unit = ()
  override protected def writeValue(out: DataOutputStream): Unit = ()
  override protected def readValue(in: DataInputStream): Unit = ()
  override def result: Any = values
}

/** Sums of whole numbers, and of decimals by their digits, of any size. */
private[slackwater] final class WholeAccumulator(
    digits: (InternalRow, Int) => Either[Long, BigInteger],
    finish: (BigInteger, Long) => Any
) extends Accumulator {
  private var small = 0L
  private var large = BigInteger.ZERO

  override protected def addValue(row: InternalRow, at: Int, diff: Long): Unit =
    digits(row, at) match {
      case Left(value) =>
        val high = Math.multiplyHigh(value, diff)
        val low = value * diff
        val sum = small + low
        val fits = high == (low >> 63) && ((small ^ sum) & (low ^ sum)) >= 0
        if (fits) small = sum
        else large = large.add(BigInteger.valueOf(value).multiply(BigInteger.valueOf(diff)))
      case Right(value) => large = large.add(value.multiply(BigInteger.valueOf(diff)))
    }

  private def total: BigInteger = large.add(BigInteger.valueOf(small))

  override protected def mergeValue(other: Accumulator): Unit =
    large = large.add(other.asInstanceOf[WholeAccumulator].total)

  override protected def writeValue(out: DataOutputStream): Unit = {
    val bytes = total.toByteArray
    out.writeInt(bytes.length)
    out.write(bytes)
  }

  override protected def readValue(in: DataInputStream): Unit = {
    small = 0L
    large = new BigInteger(in.readNBytes(in.readInt()))
  }

  override def result: Any = finish(total, values)
}

private[slackwater] final class DoubleAccumulator(
    value: (InternalRow, Int) => Double,
    finish: (Double, Long) => Any
) extends Accumulator {
  private var sum = new ExactSum

  override protected def addValue(row: InternalRow, at: Int, diff: Long): Unit =
    sum.add(value(row, at), diff)

  override protected def mergeValue(other: Accumulator): Unit =
    sum.add(other.asInstanceOf[DoubleAccumulator].sum)

  override protected def writeValue(out: DataOutputStream): Unit = sum.write(out)

  override protected def readValue(in: DataInputStream): Unit = sum = ExactSum.read(in)

  override def result: Any = finish(sum.value, values)
}
