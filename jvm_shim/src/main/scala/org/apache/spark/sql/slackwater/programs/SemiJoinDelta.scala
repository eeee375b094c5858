package org.apache.spark.sql.slackwater.programs

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.{JoinedRow, UnsafeRow}

/** The rows of the left side for which the right side has a partner, or has none.
  *
  * With `m(a, t)` how often the left side has the row and `s(a, t)` one or zero, the result is
  * `m * s`, and its change `(m(t) - m(t-1)) * s(t) + m(t-1) * (s(t) - s(t-1))`: a change of the left
  * side is looked up in the right one, and where a change of the right side turns `s`, the rows of
  * the left side are looked up.
  *
  * @param present
  *   whether rows with a partner are wanted, or those without
  * @param condition
  *   over the left columns, then the right side's keys and arranged columns
  * @param restore
  *   over the left side's keys and arranged columns: a row of it
  */
private[slackwater] final class SemiJoinDelta(
    left: Int,
    right: Int,
    leftSide: Arranged,
    rightSide: Arranged,
    leftKeys: Evaluation,
    rightKeys: Evaluation,
    nullSafe: IndexedSeq[Boolean],
    condition: Option[Condition],
    restore: Evaluation,
    present: Boolean
) extends Operator {
  private val entry = new JoinedRow
  private val joined = new JoinedRow

  override def inputs: Seq[Int] = Seq(left, right)
  override def mode: String = rightSide.mode

  override def run(tick: TickContext, metrics: OperatorMetrics): Updates = {
    val out = new Updates(tick.budget)
    changesOfLeft(tick, metrics, out)
    changesOfRight(tick, metrics, out)
    out
  }

  private def changesOfLeft(tick: TickContext, metrics: OperatorMetrics, out: Updates): Unit = {
    rightSide.want(tick)(Matching.keysOf(tick(left), leftKeys, nullSafe))
    tick(left).foreach { (row, time, diff) =>
      val key = leftKeys(row)
      val below = math.min(time + 1, tick.upper)
      val partners = if (Keyed.matches(key, nullSafe)) count(row, key, below, metrics) else 0L
      if ((partners > 0) == present) out.add(row, time, diff)
    }
  }

  /** How many partners the row has before `below`. */
  private def count(row: UnsafeRow, key: UnsafeRow, below: Long, metrics: OperatorMetrics): Long = {
    var partners = 0L
    condition match {
      case None =>
        rightSide.count(key, below, metrics)((_, diff) => partners = Math.addExact(partners, diff))
      case Some(fits) =>
        rightSide.lookup(key, below, metrics) { (found, _, diff) =>
          if (fits(joined(row, entry(key, found)))) partners = Math.addExact(partners, diff)
        }
    }
    partners
  }

  private def changesOfRight(tick: TickContext, metrics: OperatorMetrics, out: Updates): Unit = {
    val keys = mutable.LinkedHashSet.empty[UnsafeRow]
    tick(right).foreach { (row, _, _) =>
      val key = rightKeys(row)
      if (Keyed.matches(key, nullSafe) && !keys.contains(key)) keys += key.copy()
    }
    rightSide.want(tick)(keys.foreach)
    leftSide.want(tick)(keys.foreach)
    keys.foreach { key =>
      if (condition.isEmpty) turnedTogether(key, tick, metrics, out)
      else turned(key, tick, metrics, out)
    }
  }

  /** What comes and goes on the left side because of how many partners there are with this key. */
  private def turnedTogether(
      key: UnsafeRow,
      tick: TickContext,
      metrics: OperatorMetrics,
      out: Updates
  ): Unit = {
    val partners = mutable.ArrayBuffer.empty[(Long, Long)]
    rightSide.count(key, tick.upper, metrics)((time, diff) => partners += ((time, diff)))
    val always = turns(partners.iterator, tick)
    if (always.nonEmpty)
      leftSide.lookup(key, tick.upper, metrics) { (found, time, diff) =>
        val row = restore(entry(key, found))
        emit(row, time, diff, always, out)
      }
  }

  private def emit(
      row: UnsafeRow,
      time: Long,
      diff: Long,
      turns: Seq[(Long, Long)],
      out: Updates
  ): Unit = turns.foreach { case (at, change) =>
    if (time < at) out.add(row.copy(), at, Math.multiplyExact(diff, change))
  }

  /** What comes and goes on the left side because of the partners with this key, each of which may be
    * one of some rows.
    */
  private def turned(
      key: UnsafeRow,
      tick: TickContext,
      metrics: OperatorMetrics,
      out: Updates
  ): Unit = {
    val partners = mutable.ArrayBuffer.empty[(UnsafeRow, Long, Long)]
    rightSide.lookup(key, tick.upper, metrics) { (found, time, diff) =>
      partners += ((found.copy(), time, diff))
    }
    val changed = partners.filter(_._2 >= tick.lower)
    // A row's partners are counted once, however many updates it has.
    val known = mutable.HashMap.empty[UnsafeRow, Seq[(Long, Long)]]
    leftSide.lookup(key, tick.upper, metrics) { (found, time, diff) =>
      val row = restore(entry(key, found))
      val turns = known.getOrElse(
        row, {
          val own = row.copy()
          val made = turnsOf(own, partners, changed, key, tick)
          known.put(own, made)
          made
        }
      )
      emit(row, time, diff, turns, out)
    }
  }

  /** Partners are counted only for a row that one which has changed fits to. */
  private def turnsOf(
      row: UnsafeRow,
      partners: Iterable[(UnsafeRow, Long, Long)],
      changed: Iterable[(UnsafeRow, Long, Long)],
      key: UnsafeRow,
      tick: TickContext
  ): Seq[(Long, Long)] = {
    def fits(partner: (UnsafeRow, Long, Long)): Boolean =
      condition.forall(_(joined(row, entry(key, partner._1))))
    if (!changed.exists(fits)) Nil
    else {
      val fitting = partners.iterator.filter(fits)
      turns(fitting.map { case (_, time, diff) => (time, diff) }, tick)
    }
  }

  /** The times in the interval at which `s` turns, with +1 or -1. */
  private def turns(partners: Iterator[(Long, Long)], tick: TickContext): Seq[(Long, Long)] = {
    val changes = mutable.TreeMap.empty[Long, Long]
    var count = 0L
    partners.foreach { case (time, diff) =>
      if (time < tick.lower) count = Math.addExact(count, diff)
      else changes.update(time, Math.addExact(changes.getOrElse(time, 0L), diff))
    }
    def wanted: Boolean = (count > 0) == present
    var was = wanted
    val found = mutable.ArrayBuffer.empty[(Long, Long)]
    changes.foreach { case (time, diff) =>
      count = Math.addExact(count, diff)
      if (wanted != was) {
        was = wanted
        found += ((time, if (was) 1L else -1L))
      }
    }
    found.toSeq
  }
}
