package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.catalyst.expressions.{JoinedRow, UnsafeRow}

private[programs] object Matching {

  /** The keys of updates that can be equal to others. */
  def keysOf(updates: Updates, keys: Evaluation, nullSafe: IndexedSeq[Boolean])(
      visit: UnsafeRow => Unit
  ): Unit = updates.foreach { (row, _, _) =>
    val key = keys(row)
    if (Keyed.matches(key, nullSafe)) visit(key)
  }
}

/** The updates of one side with what the other side has for their keys:
  * `{((a, b), max(ta, tb), da * db)}`.
  *
  * @param old
  *   sees the other side as it was before the interval; else with its changes in the interval
  * @param project
  *   over the update's columns, the other's keys and the other's arranged columns
  */
private[slackwater] final class Lookup(
    in: Int,
    other: Arranged,
    keys: Evaluation,
    nullSafe: IndexedSeq[Boolean],
    old: Boolean,
    condition: Option[Condition],
    project: Evaluation
) extends Operator {
  private val entry = new JoinedRow
  private val joined = new JoinedRow

  override def inputs: Seq[Int] = Seq(in)
  override def mode: String = other.mode

  override def run(tick: TickContext, metrics: OperatorMetrics): Updates = {
    val out = new Updates(tick.budget)
    val below = if (old) tick.lower else tick.upper
    other.want(tick)(Matching.keysOf(tick(in), keys, nullSafe))
    tick(in).foreach { (row, time, diff) =>
      tick.budget.visit()
      val key = keys(row)
      if (Keyed.matches(key, nullSafe))
        other.lookup(key, below, metrics) { (found, foundTime, foundDiff) =>
          val pair = joined(row, entry(key, found))
          if (condition.forall(_(pair)))
            out.add(
              project(pair).copy(),
              math.max(time, foundTime),
              Math.multiplyExact(diff, foundDiff)
            )
        }
    }
    out
  }
}
