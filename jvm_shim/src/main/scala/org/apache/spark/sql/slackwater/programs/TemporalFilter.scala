package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.slackwater.arrangements.{TransitionBatch, TransitionQueue}

/** The rows that are valid now: each update counts from the time on at which its row begins to be
  * valid, and no more from the one on at which it ends.
  *
  * What begins to count at once is not kept: it comes of the same updates when a tick is run again.
  */
private[slackwater] final class TemporalFilter(in: Int, validity: Validity, queue: TransitionQueue)
    extends Operator {
  override def inputs: Seq[Int] = Seq(in)
  override def mode: String = "indexed"
  override def followsInputs: Boolean = false

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
