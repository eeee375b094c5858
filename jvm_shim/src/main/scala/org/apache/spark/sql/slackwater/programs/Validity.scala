package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.{Filter, LogicalPlan}
import org.apache.spark.sql.slackwater.plans.NowBound

/** When a row is valid: in `[start, end)`, which its bounds say. Not thread-safe.
  *
  * A row one of whose bounds is NULL never is.
  */
private[slackwater] final class Validity(bounds: IndexedSeq[NowBound]) {
  private val values = new Evaluation(bounds.map(_.value))

  // Of the last row. The greatest time never comes.
  private var start = Long.MinValue
  private var end = Long.MaxValue

  /** What becomes of an update of the row at `time` (ms): the time at which it counts, with 1, and
    * the one at which it counts no more, with -1, if that comes. Nothing if it is never valid.
    */
  def transitions(row: InternalRow, time: Long)(visit: (Long, Long) => Unit): Unit = {
    bound(values(row))
    val (from, until) = (math.max(time, start), math.max(time, end))
    if (from < until) {
      visit(from, 1L)
      if (until != Long.MaxValue) visit(until, -1L)
    }
  }

  private def bound(found: UnsafeRow): Unit = {
    start = Long.MinValue
    end = Long.MaxValue
    for (i <- bounds.indices)
      if (found.isNullAt(i)) end = Long.MinValue
      else {
        val value = found.getLong(i)
        bounds(i).comparison match {
          case "<"  => end = math.min(end, value)
          case "<=" => end = math.min(end, after(value))
          case ">"  => start = math.max(start, after(value))
          case ">=" => start = math.max(start, value)
          case "="  =>
            start = math.max(start, value)
            end = math.min(end, after(value))
        }
      }
  }

  private def after(value: Long): Long = if (value == Long.MaxValue) value else value + 1

  /** Those rows of `plan`, whose output the bounds are over, that may change after `asOf`. */
  def restless(plan: LogicalPlan, asOf: Long): LogicalPlan = {
    val now = Literal(asOf)
    def over(value: Expression): Expression =
      value.transform { case BoundReference(i, _, _) => plan.output(i) }
    val isOver = bounds.collect {
      case NowBound("<", value)        => LessThanOrEqual(over(value), now)
      case NowBound("<=" | "=", value) => LessThan(over(value), now)
    }
    val isBegun = bounds.collect {
      case NowBound(">", value)        => LessThan(over(value), now)
      case NowBound(">=" | "=", value) => LessThanOrEqual(over(value), now)
    }
    val begun = isBegun.reduceOption[Expression](And).getOrElse(Literal.TrueLiteral)
    val settled = isOver.reduceOption[Expression](Or).getOrElse(begun)
    Filter(Not(settled), plan)
  }
}
