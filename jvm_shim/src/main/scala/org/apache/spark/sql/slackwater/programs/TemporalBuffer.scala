package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.arrangements.{TransitionBatch, TransitionQueue}

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

  private var isFilled = false

  override def fill(session: SparkSession, inputs: Inputs, asOf: Long): Unit = if (!isFilled) {
    val plan = validity.restless(inputs.snapshot(node), asOf)
    val physical = Hydration.execution(session, plan).executedPlan
    TaskRows.of(physical) { rows =>
      var coming = new TransitionBatch
      rows.foreach { row =>
        validity.transitions(row, asOf)((at, sign) => if (at > asOf) coming.add(row, at, sign))
        if (coming.isLarge) {
          queue.append(coming, asOf + 1)
          coming = new TransitionBatch
        }
      }
      queue.append(coming, asOf + 1)
    }
    isFilled = true
  }

  override def reached(upper: Long): Unit = queue.append(new TransitionBatch, upper)
  override def committed(upper: Long): Unit = queue.forget(upper)
  override def nextChange(from: Long): Long = queue.next(from)
  override def close(): Unit = queue.close()
}
