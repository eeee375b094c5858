package org.apache.spark.sql.slackwater.arrangements

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/** Updates that wait for their times, in memory, in the order of their times.
  *
  * They are in sorted runs, each more than twice as long as the next one: what is added is merged with
  * what is short, and what is due is at the beginning of each. So those that are far away cost nothing
  * when others are due, and each is copied as often as there are runs. An update and its retraction
  * cancel where their runs meet.
  *
  * Until [[forget]] they stay, also those that were due: a tick may be run again. Not thread-safe.
  *
  * @param rowFields
  *   how many fields a row has
  * @param name
  *   who is named when the budget does not suffice
  */
final class TransitionQueue(rowFields: Int, budget: MemoryBudget, name: String) {
  private val memory = new Allotment(budget, name)
  // The oldest and longest first.
  private val runs = ArrayBuffer.empty[TransitionRun]
  private var complete = 0L

  /** What was to be added of all updates before this time, in ms, is there. */
  def upper: Long = complete

  /** Stored updates. */
  def rows: Long = runs.iterator.map(_.rows).sum

  /** Memory outside the heap that the queue has of the budget. */
  def bytes: Long = memory.bytes

  /** Adds what the updates with times in `[upper, newUpper)` let wait, or nothing; an earlier upper
    * than the present one stays as it is.
    *
    * Throws [[ArrangementTooLarge]].
    */
  def append(batch: TransitionBatch, newUpper: Long): Unit = {
    val made = ArrayBuffer.empty[TransitionRun]
    try batch.sorted.foreach(chunk => made ++= TransitionRun.of(Seq(chunk), memory))
    catch {
      case failure: Throwable =>
        made.foreach(_.free(memory))
        throw failure
    }
    made.foreach { run =>
      runs += run
      tidy()
    }
    complete = math.max(complete, newUpper)
  }

  /** The updates with ``lower <= time < upper``, in no order. A row is only valid during the call. */
  def between(lower: Long, upper: Long)(visit: (UnsafeRow, Long, Long) => Unit): Unit = {
    val row = new UnsafeRow(rowFields)
    due(lower, upper) { at =>
      row.pointTo(null, at + Transition.Row, Transition.rowLength(null, at))
      visit(row, Transition.time(null, at), Transition.diff(null, at))
    }
  }

  /** The first time from `from` on at which an update waits; Long.MaxValue if there is none. */
  def next(from: Long): Long = runs.iterator.map(first(_, from)).minOption.getOrElse(Long.MaxValue)

  /** Nobody asks for times before `time` (ms) again. */
  def forget(time: Long): Unit = {
    runs.foreach(_.forget(time))
    runs.filter(_.isEmpty).foreach(_.free(memory))
    runs.filterInPlace(!_.isEmpty)
    for (i <- runs.indices.reverse) if (runs(i).isWasteful) merge(i, 1)
    tidy()
  }

  /** Gives all memory back. */
  def close(): Unit = {
    runs.foreach(_.free(memory))
    runs.clear()
  }

  private def due(lower: Long, upper: Long)(visit: Long => Unit): Unit = runs.foreach { run =>
    val all = run.transitions
    while (!all.isAtEnd && Transition.time(null, all.at) < upper) {
      if (Transition.time(null, all.at) >= lower) visit(all.at)
      all.advance()
    }
  }

  private def first(run: TransitionRun, from: Long): Long = {
    val all = run.transitions
    while (!all.isAtEnd && Transition.time(null, all.at) < from) all.advance()
    if (all.isAtEnd) Long.MaxValue else Transition.time(null, all.at)
  }

  private def tidy(): Unit = {
    var short = shortRun
    while (short >= 0 && merge(short, 2)) short = shortRun
  }

  /** The last run that is not more than twice as long as its successor, or -1. */
  private def shortRun: Int =
    (0 until runs.size - 1).lastIndexWhere(i => runs(i).rows <= 2 * runs(i + 1).rows)

  /** Makes `count` runs one. Without memory for that they stay as they are, which is right as well. */
  private def merge(from: Int, count: Int): Boolean = {
    val old = runs.slice(from, from + count)
    try {
      val made = TransitionRun.of(old.toSeq, memory)
      old.foreach(_.free(memory))
      runs.remove(from, count)
      runs.insertAll(from, made)
      true
    } catch { case _: ArrangementTooLarge => false }
  }
}
