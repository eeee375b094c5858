package org.apache.spark.sql.slackwater.write

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.slackwater.hold.Hold

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
