package org.apache.spark.sql.slackwater.arrangements

import java.util.Arrays

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.unsafe.Platform

/** Rows of one key with the sums of their multiplicities, in the heap. */
private[arrangements] final class History {
  private var bytes: Array[Byte] = null
  private var used = 0
  private var starts: Array[Int] = null
  private var lengths: Array[Int] = null
  private var hashes: Array[Int] = null
  private var diffs: Array[Long] = null
  // Positions of rows, from 1. Twice as many as places for rows.
  private var table: Array[Int] = null
  private var count = 0
  begin()

  private def begin(): Unit = {
    bytes = new Array[Byte](1024)
    starts = new Array[Int](History.FewRows)
    lengths = new Array[Int](History.FewRows)
    hashes = new Array[Int](History.FewRows)
    diffs = new Array[Long](History.FewRows)
    table = new Array[Int](2 * History.FewRows)
  }

  def isEmpty: Boolean = count == 0
  def size: Int = count
  def diff(i: Int): Long = diffs(i)

  def point(row: UnsafeRow, i: Int): Unit =
    row.pointTo(bytes, Platform.BYTE_ARRAY_OFFSET + starts(i), lengths(i))

  /** Adds the row that `row` begins with. */
  def add(row: Array[Byte], length: Int, diff: Long): Unit = {
    val hash = hashOf(row, length)
    val slot = slotOf(row, length, hash)
    if (table(slot) != 0) diffs(table(slot) - 1) += diff
    else {
      table(slot) = count + 1
      append(row, length, hash, diff)
    }
  }

  /** Takes the row out, and says which multiplicity it had: 0 if it was not there. */
  def remove(row: Array[Byte], length: Int): Long = {
    val slot = slotOf(row, length, hashOf(row, length))
    if (table(slot) == 0) 0
    else {
      val diff = diffs(table(slot) - 1)
      diffs(table(slot) - 1) = 0
      diff
    }
  }

  private def hashOf(row: Array[Byte], length: Int): Int =
    Update.hash(row, Platform.BYTE_ARRAY_OFFSET, length)

  private def slotOf(row: Array[Byte], length: Int, hash: Int): Int = {
    val mask = table.length - 1
    var slot = hash & mask
    while (table(slot) != 0 && !isRow(table(slot) - 1, row, length, hash)) slot = (slot + 1) & mask
    slot
  }

  private def isRow(i: Int, row: Array[Byte], length: Int, hash: Int): Boolean = {
    val start = Platform.BYTE_ARRAY_OFFSET
    hashes(i) == hash && lengths(i) == length &&
    Update.sameBytes(bytes, start + starts(i), row, start, length)
  }

  private def append(row: Array[Byte], length: Int, hash: Int, diff: Long): Unit = {
    val end = Math.addExact(used, length)
    if (end > bytes.length) bytes = Arrays.copyOf(bytes, math.max(end, 2 * bytes.length))
    System.arraycopy(row, 0, bytes, used, length)
    starts(count) = used
    lengths(count) = length
    hashes(count) = hash
    diffs(count) = diff
    used = end
    count += 1
    if (count == starts.length) grow()
  }

  private def grow(): Unit = {
    starts = Arrays.copyOf(starts, 2 * count)
    lengths = Arrays.copyOf(lengths, 2 * count)
    hashes = Arrays.copyOf(hashes, 2 * count)
    diffs = Arrays.copyOf(diffs, 2 * count)
    table = new Array[Int](4 * count)
    for (i <- 0 until count) {
      var slot = hashes(i) & (table.length - 1)
      while (table(slot) != 0) slot = (slot + 1) & (table.length - 1)
      table(slot) = i + 1
    }
  }

  /** What a hot key needed is not kept: other keys would have to clear it. */
  def clear(): Unit = if (count > 0) {
    if (count > History.ManyRows) begin() else Arrays.fill(table, 0)
    count = 0
    used = 0
  }
}

private object History {
  val FewRows = 16
  val ManyRows = 1024
}
