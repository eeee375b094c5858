package org.apache.spark.sql.slackwater.programs

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  BoundReference,
  GenericInternalRow,
  InterpretedUnsafeProjection,
  UnsafeProjection,
  UnsafeRow
}
import org.apache.spark.sql.types.BinaryType

/** One group while it is computed. */
private[slackwater] final class GroupAccumulators(val accumulators: Array[Accumulator]) {
  var rows = 0L

  def add(inputs: InternalRow, diff: Long): Unit = {
    rows = Math.addExact(rows, diff)
    var i = 0
    while (i < accumulators.length) {
      accumulators(i).add(inputs, i, diff)
      i += 1
    }
  }

  def merge(other: GroupAccumulators): Unit = {
    rows = Math.addExact(rows, other.rows)
    accumulators.zip(other.accumulators).foreach { case (own, more) => own.merge(more) }
  }

  def state: Array[Byte] = {
    val bytes = new ByteArrayOutputStream(64)
    val out = new DataOutputStream(bytes)
    out.writeLong(rows)
    accumulators.foreach(_.write(out))
    bytes.toByteArray
  }

  def results: InternalRow = new GenericInternalRow(accumulators.map(_.result): Array[Any])
}

private[slackwater] object GroupAccumulators {
  def of(reduction: Reduction, state: Array[Byte]): GroupAccumulators = {
    val group = new GroupAccumulators(reduction.start())
    val in = new DataInputStream(new ByteArrayInputStream(state))
    group.rows = in.readLong()
    group.accumulators.foreach(_.read(in))
    group
  }

  /** States as the rows that an arrangement keeps. */
  def stateRow: UnsafeProjection =
    InterpretedUnsafeProjection.createProjection(
      Seq(BoundReference(0, BinaryType, nullable = false))
    )

  /** Valid until `row` is used again. */
  def asRow(row: UnsafeProjection, state: Array[Byte]): UnsafeRow =
    row(new GenericInternalRow(Array[Any](state)))
}
