package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/** Updates of one interval. The rows are owned: nobody changes them after `add`.
  *
  * @param budget
  *   what holds them
  */
private[slackwater] final class Updates(budget: TickBudget = TickBudget.unlimited) {
  import Updates._

  private var rows = new Array[UnsafeRow](16)
  private var times = new Array[Long](16)
  private var diffs = new Array[Long](16)
  private var count = 0
  private var bytes = Empty
  budget.take(bytes)

  def size: Int = count
  def isEmpty: Boolean = count == 0

  /** About what the rows take in the heap. */
  def rowBytes: Long = {
    var total = Empty
    foreach((row, _, _) => total += row.getSizeInBytes + BesideRow)
    total
  }

  def add(row: UnsafeRow, time: Long, diff: Long): Unit = {
    if (count == rows.length) grow()
    val taken = row.getSizeInBytes + BesideRow
    bytes += taken
    budget.take(taken)
    rows(count) = row
    times(count) = time
    diffs(count) = diff
    count += 1
  }

  def foreach(visit: (UnsafeRow, Long, Long) => Unit): Unit = {
    var i = 0
    while (i < count) {
      visit(rows(i), times(i), diffs(i))
      i += 1
    }
  }

  /** Nobody reads them any more. */
  def giveBack(): Unit = {
    budget.giveBack(bytes)
    bytes = 0
  }

  /** The same changes with each row once at each time, and none that comes to nothing. */
  def consolidated: Updates = {
    val firsts = new Array[Int](4 * Integer.highestOneBit(math.max(count, 1)))
    val sums = new Array[Long](count)
    var i = 0
    while (i < count) {
      val first = firstLike(i, firsts)
      sums(first) = Math.addExact(sums(first), diffs(i))
      i += 1
    }
    val result = new Updates(budget)
    i = 0
    while (i < count) {
      if (sums(i) != 0) result.add(rows(i), times(i), sums(i))
      i += 1
    }
    giveBack()
    result
  }

  /** The first update with the row and the time of update `i`.
    *
    * @param firsts
    *   an open hash table of those that came before, each by its number and one
    */
  private def firstLike(i: Int, firsts: Array[Int]): Int = {
    val mask = firsts.length - 1
    var at = (rows(i).hashCode ^ (times(i) * Spread >>> 32).toInt) & mask
    while (firsts(at) != 0 && !same(firsts(at) - 1, i)) at = (at + 1) & mask
    if (firsts(at) == 0) firsts(at) = i + 1
    firsts(at) - 1
  }

  private def same(one: Int, other: Int): Boolean =
    times(one) == times(other) && rows(one) == rows(other)

  private def grow(): Unit = {
    val length = count * 2
    rows = java.util.Arrays.copyOf(rows, length)
    times = java.util.Arrays.copyOf(times, length)
    diffs = java.util.Arrays.copyOf(diffs, length)
  }
}

private[slackwater] object Updates {

  /** The objects of a row, its place, its time and its diff. */
  private val BesideRow = 64L
  private val Empty = 450L

  /** The golden ratio, by which times that follow each other come apart. */
  private val Spread = 0x9e3779b97f4a7c15L

  val none: Updates = new Updates
}
