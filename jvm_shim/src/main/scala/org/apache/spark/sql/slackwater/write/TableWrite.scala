package org.apache.spark.sql.slackwater.write

import java.util.UUID

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.hold.Hold
import org.apache.spark.sql.slackwater.process.SparkSessions
import org.apache.spark.sql.slackwater.protocol.Wire
import org.apache.spark.sql.slackwater.values.Stored
import org.apache.spark.sql.types.{LongType, StructType}

/** One statement's write of one table, from its id to its commit. */
private[slackwater] final class TableWrite(
    session: SparkSession,
    table: WriteTarget,
    mode: WriteMode
) {
  val id: String = UUID.randomUUID.toString

  val schema: StructType = {
    val columns = Stored.columns(table.dataSchema)
    if (mode == WriteMode.Diff) TableWrite.diffSchema(columns) else columns
  }

  /** A sink in the directory that the coordinator names. */
  def sink(limit: InlineLimit): RowSink = {
    val body = SparkSessions.request(session).put("write_id", id)
    table.address(body)
    val answer = table.coordinator.call("/v1/prepare_write", body)
    RowSink.create(session, schema, answer.get("directory").asText, id, limit)
  }

  /** Commits what was written, at one timestamp, together with what was read under the hold. */
  def commit(hold: Option[Hold], parts: Seq[Written], sink: => RowSink): JsonNode = {
    val body = SparkSessions.request(session)
    hold.fold(body.putNull("hold"))(h => body.put("hold", h.name))
    describe(body, parts, sink)
    val answer = table.coordinator.call("/v1/write", body)
    hold.foreach(_.consumed())
    answer
  }

  def describe(body: ObjectNode, parts: Seq[Written], sink: => RowSink): Unit = {
    body.put("write_id", id)
    table.address(body)
    table.define(body)
    body.put("mode", mode.name)
    val small = fitting(parts, sink)
    val inline = body.putArray("inline")
    small.flatMap(_.inline).foreach(bytes => inline.add(Wire.base64(bytes)))
    val files = body.putArray("files")
    small.flatMap(_.files).foreach(_.describe(files.addObject()))
  }

  /** Tasks' small results together can be too much for one message: then they become a file. */
  private def fitting(parts: Seq[Written], sink: => RowSink): Seq[Written] = {
    val rows = parts.map(_.inlineRows).sum
    val bytes = parts.flatMap(_.inline).map(_.length.toLong).sum
    if (rows <= InlineLimit.statement.rows && bytes <= InlineLimit.statement.bytes) parts
    else {
      val streams = parts.iterator.flatMap(_.inline)
      val file = sink
        .limitedTo(InlineLimit.none)
        .drain(parts.size, streams.flatMap(bytes => Wire.decode(Iterator(bytes), schema)))
      parts.map(_.copy(inline = None, inlineRows = 0L)) :+ file
    }
  }
}

private[slackwater] object TableWrite {
  def diffSchema(schema: StructType): StructType =
    schema.add(Wire.DiffColumn, LongType, nullable = false)
}
