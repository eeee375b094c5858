package org.apache.spark.sql.slackwater.write

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.slackwater.hold.Hold
import org.apache.spark.sql.slackwater.process.WriteProgress
import org.apache.spark.sql.slackwater.protocol.Wire
import org.apache.spark.sql.slackwater.scan.execution.DriverTask

/** The rows of one statement, and what it read them under. `commit` or `release` ends them. */
private[slackwater] final class WrittenRows(
    write: TableWrite,
    holds: Seq[Hold],
    parts: Seq[Written],
    sink: => RowSink
) {
  def commit(): Unit =
    try {
      val _ = write.commit(holds.headOption, parts, sink)
    } finally release()

  /** Says what was written in a request that commits several writes. */
  def describe(request: ObjectNode): Unit = write.describe(request, parts, sink)

  def release(): Unit = holds.foreach(_.release())
}

private[slackwater] object WrittenRows {

  /** Runs the plan, and puts down what `form` makes of its rows: a row of each, in their order. */
  def of(target: Target, session: SparkSession, plan: SparkPlan, holds: => Seq[Hold])(
      form: Iterator[InternalRow] => Iterator[InternalRow]
  ): WrittenRows = {
    val write = new TableWrite(session, target.table, target.mode)
    lazy val sink = write.sink(InlineLimit.statement)
    val parts = WriteProgress.during(session, target.table.coordinator) {
      DriverTask.execute(plan) match {
        case Right(rows) if fits(rows) => Seq(inline(rows.length, form(rows.iterator), write))
        case Right(rows)               => Seq(sink.drain(0, form(rows.iterator)))
        case Left(rows)                =>
          val limit = InlineLimit.ofTask(rows.sparkContext, rows.getNumPartitions)
          Written.byJob(rows.mapPartitions(form), write.sink(limit))
      }
    }
    new WrittenRows(write, holds, parts, sink)
  }

  private def fits(rows: Array[InternalRow]): Boolean = rows.length <= InlineLimit.statement.rows

  private def inline(count: Int, rows: Iterator[InternalRow], write: TableWrite): Written =
    Written(Option.when(count > 0)(Wire.encode(rows, write.schema)), count.toLong, Nil)
}
