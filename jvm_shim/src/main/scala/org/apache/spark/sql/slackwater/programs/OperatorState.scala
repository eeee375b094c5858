package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.arrangements.Batch

/** What a program keeps between ticks. All times are in ms. */
private[slackwater] trait OperatorState {

  /** Fills it by a job of Spark with the contents at `asOf`, which `inputs` have. */
  def fill(session: SparkSession, inputs: Inputs, asOf: Long): Unit

  /** Nothing has changed in it up to `upper` beyond what it has got. */
  def reached(upper: Long): Unit

  /** No tick will begin before `upper`. */
  def committed(upper: Long): Unit

  /** The first time from `from` on at which it makes the output change though no input changes;
    * Long.MaxValue if there is none.
    */
  def nextChange(from: Long): Long

  def close(): Unit
}

/** One arrangement. */
private[slackwater] final class ArrangementState(
    arrangements: Arrangements,
    arrangement: SharedArrangement,
    reader: AnyRef,
    rows: Before => Iterator[(UnsafeRow, UnsafeRow, Long)]
) extends OperatorState {

  override def fill(session: SparkSession, inputs: Inputs, asOf: Long): Unit =
    arrangement.load(asOf)(rows(Before(session, inputs)))

  override def reached(upper: Long): Unit = arrangement.advanceTo(upper)(_ => new Batch)

  override def committed(upper: Long): Unit = arrangement.needs(reader, upper - 1)
  override def nextChange(from: Long): Long = Long.MaxValue
  override def close(): Unit = arrangements.leave(arrangement, reader)
}
