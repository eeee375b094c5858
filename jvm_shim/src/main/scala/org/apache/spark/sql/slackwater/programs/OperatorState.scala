package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.classic.SparkSession

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

  /** Nobody wants it any more: a `fill` in another thread ends, now or when it comes. */
  def cancel(): Unit = ()

  def close(): Unit
}
