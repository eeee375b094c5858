package org.apache.spark.sql.slackwater.parser

import java.util.UUID

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.slackwater.lexer.{Lexer, TokenKind}
import org.apache.spark.sql.slackwater.process.{
  Notices,
  RunningStatement,
  SessionFunctions,
  SparkSessions
}
import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.{CatalystTypeConverters, InternalRow}
import org.apache.spark.sql.catalyst.expressions.{Attribute, BoundReference, UnsafeProjection}
import org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes
import org.apache.spark.sql.execution.arrow.ArrowConverters
import org.apache.spark.sql.execution.command.LeafRunnableCommand
import org.apache.spark.sql.slackwater.values.Stored
import org.apache.spark.sql.types.StructType

/** COMMIT or ROLLBACK in a session that has never called a coordinator: it cannot be in a block. */
case object NoBlockToEnd extends LeafRunnableCommand {
  override def run(session: SparkSession): Seq[Row] = {
    Notices.warn("There is no transaction in progress.")
    Nil
  }
}

/** A statement that the coordinator runs; `planned` are the columns that it answers with, and it was
  * planned at `plannedAt`, by the coordinator's clock (ms).
  */
case class SlackwaterCommand(text: String, planned: StructType, plannedAt: Long)
    extends LeafRunnableCommand {

  override val output: Seq[Attribute] = toAttributes(planned)

  override def run(session: SparkSession): Seq[Row] = {
    val body = SparkSessions.statement(session)
    val functions = SessionFunctions.namedIn(session, text)
    if (!functions.isEmpty) {
      body.withObject("/context").set[ObjectNode]("functions", functions)
    }
    body.put("text", text)
    val number = RunningStatement.execution(session.sparkContext)
    body.put("execution", number.getOrElse(UUID.randomUUID.toString))
    body.put("planned_at", plannedAt)
    // By it a COMMIT whose answer was lost can be asked for again.
    body.put("write_id", UUID.randomUUID.toString)
    rows(SparkSessions.coordinator(session).execute(body))
  }

  private def rows(stream: Array[Byte]): Seq[Row] = {
    val (decoded, schema) = ArrowConverters.fromIPCStream(stream)
    try {
      val isOther =
        planned != Stored.schema(Stored.columns(planned)) && planned.length == schema.length
      val shown = if (isOther) planned else schema
      val restored = if (isOther) restoring(schema) else identity[InternalRow] _
      val convert = CatalystTypeConverters.createToScalaConverter(shown)
      decoded.map(row => convert(restored(row)).asInstanceOf[Row]).toVector
    } finally decoded.close()
  }

  /** Rows as they are planned, out of those of a stream. */
  private def restoring(stored: StructType): InternalRow => InternalRow =
    UnsafeProjection.create(stored.zip(planned).zipWithIndex.map { case ((field, to), i) =>
      Stored.restored(BoundReference(i, field.dataType, nullable = true), to.dataType)
    })

  /** Only the statement's first words: what follows may hold secrets, and plans are shown. */
  override def argString(maxFields: Int): String =
    Lexer.first(text, 3).takeWhile(_.kind == TokenKind.Word).map(_.image).mkString(" ")
}
