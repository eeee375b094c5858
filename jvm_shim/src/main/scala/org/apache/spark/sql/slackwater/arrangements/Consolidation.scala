package org.apache.spark.sql.slackwater.arrangements

import java.util.Arrays

/** Sums the multiplicities of equal rows of a key at equal times, of which those up to since are one.
  *
  * By a hash of the row, so that a key with many rows and many retractions takes linear time.
  */
private[arrangements] final class Consolidation(since: Long) {
  private var sums = new Array[Long](64)
  // The positions of rows, from 1.
  private var table = new Array[Int](128)

  /** The multiplicity of an update, by its position; of equal ones the first has that of all. */
  def diff(i: Int): Long = sums(i)

  /** Leaves the updates as they are. */
  def take(updates: Array[Long], from: Int, to: Int): Unit = {
    if (sums.length < to - from) sums = new Array[Long](2 * (to - from))
    var i = from
    while (i < to) {
      sums(i - from) = Update.diff(null, updates(i))
      i += 1
    }
  }

  def of(updates: Array[Long], from: Int, to: Int): Unit = {
    take(updates, from, to)
    val slots = Integer.highestOneBit(to - from) << 2
    if (table.length < slots) table = new Array[Int](slots) else Arrays.fill(table, 0, slots, 0)
    var i = from
    while (i < to) {
      val first = enter(updates, from, i, slots - 1)
      if (first != i) {
        sums(first - from) += sums(i - from)
        sums(i - from) = 0
      }
      i += 1
    }
  }

  /** The first of the updates that are equal to the one at `i`. */
  private def enter(updates: Array[Long], from: Int, i: Int, mask: Int): Int = {
    val update = updates(i)
    val length = Update.rowLength(null, update)
    val hash = Update.hash(null, Update.row(null, update), length) + time(update).toInt * 31
    var slot = hash & mask
    while (table(slot) != 0 && !equal(updates(from + table(slot) - 1), update))
      slot = (slot + 1) & mask
    if (table(slot) == 0) table(slot) = i - from + 1
    from + table(slot) - 1
  }

  private def time(update: Long): Long = math.max(Update.time(null, update), since)

  private def equal(a: Long, b: Long): Boolean = {
    val length = Update.rowLength(null, a)
    time(a) == time(b) && length == Update.rowLength(null, b) &&
    Update.sameBytes(null, Update.row(null, a), null, Update.row(null, b), length)
  }
}
