package org.apache.spark.sql.slackwater.programs

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/** Updates of one interval. The rows are owned: nobody changes them after `add`.
  *
  * @param allowance
  *   what holds them
  */
private[slackwater] final class Updates(allowance: Allowance = Allowance.unlimited) {
  import Updates._

  private var rows = new Array[UnsafeRow](16)
  private var times = new Array[Long](16)
  private var diffs = new Array[Long](16)
  private var count = 0
  private var bytes = Empty
  allowance.take(bytes)

  def size: Int = count
  def isEmpty: Boolean = count == 0

  def add(row: UnsafeRow, time: Long, diff: Long): Unit = {
    if (count == rows.length) grow()
    val taken = row.getSizeInBytes + BesideRow
    bytes += taken
    allowance.take(taken)
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
    allowance.giveBack(bytes)
    bytes = 0
  }

  /** The same changes with each row once at each time, and none that comes to nothing. */
  def consolidated: Updates = {
    val sums = mutable.LinkedHashMap.empty[(UnsafeRow, Long), Long]
    foreach { (row, time, diff) =>
      sums.updateWith((row, time))(found => Some(Math.addExact(found.getOrElse(0L), diff)))
    }
    val result = new Updates(allowance)
    sums.foreach { case ((row, time), diff) => if (diff != 0) result.add(row, time, diff) }
    giveBack()
    result
  }

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

  val none: Updates = new Updates
}
