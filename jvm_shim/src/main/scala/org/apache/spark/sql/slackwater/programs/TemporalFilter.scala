package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.{Filter, LogicalPlan}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.arrangements.{TransitionBatch, TransitionQueue}
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

/** The rows of a temporal filter that wait for their times, filled by a job of Spark.
  *
  * @param node
  *   whose rows are filtered
  */
private[slackwater] final class TemporalBuffer(
    val queue: TransitionQueue,
    node: Int,
    validity: Validity
) extends OperatorState {

  override def fill(session: SparkSession, inputs: Inputs, asOf: Long): Unit = {
    val plan = validity.restless(inputs.snapshot(node), asOf)
    val physical = Hydration.execution(session, plan).executedPlan
    val asUnsafe = UnsafeProjection.create(physical.schema)
    var coming = new TransitionBatch
    physical.executeCollectIterator()._2.foreach { found =>
      val row = asUnsafe(found)
      validity.transitions(row, asOf)((at, sign) => if (at > asOf) coming.add(row, at, sign))
      if (coming.isLarge) {
        queue.append(coming, asOf + 1)
        coming = new TransitionBatch
      }
    }
    queue.append(coming, asOf + 1)
  }

  override def reached(upper: Long): Unit = queue.append(new TransitionBatch, upper)
  override def committed(upper: Long): Unit = queue.forget(upper)
  override def nextChange(from: Long): Long = queue.next(from)
  override def close(): Unit = queue.close()
}

/** The rows that are valid now: each update counts from the time on at which its row begins to be
  * valid, and no more from the one on at which it ends.
  *
  * What begins to count at once is not kept: it comes of the same updates when a tick is run again.
  */
private[slackwater] final class TemporalFilter(in: Int, validity: Validity, queue: TransitionQueue)
    extends Operator {
  override def inputs: Seq[Int] = Seq(in)
  override def mode: String = "indexed"

  override def isIdle(tick: TickContext): Boolean =
    tick(in).isEmpty && queue.next(tick.lower) >= tick.upper

  override def run(tick: TickContext, metrics: OperatorMetrics): Updates = {
    val out = new Updates(tick.budget)
    val coming = new TransitionBatch
    tick(in).foreach { (row, time, diff) =>
      validity.transitions(row, time) { (at, sign) =>
        if (at == time) out.add(row, at, sign * diff)
        else if (time >= queue.upper) coming.add(row, at, sign * diff)
      }
    }
    queue.append(coming, tick.upper)
    queue.between(tick.lower, tick.upper) { (row, time, diff) =>
      metrics.lookedUp += 1
      out.add(row.copy(), time, diff)
    }
    out
  }
}
