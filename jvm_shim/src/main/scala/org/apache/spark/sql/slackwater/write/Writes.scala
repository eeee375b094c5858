package org.apache.spark.sql.slackwater.write

import java.util.UUID

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.connector.catalog.Table
import org.apache.spark.sql.connector.write.{SupportsTruncate, V1Write, WriteBuilder}
import org.apache.spark.sql.execution.{QueryExecution, SparkPlan}
import org.apache.spark.sql.slackwater.hold.{BindScope, Hold}
import org.apache.spark.sql.slackwater.process.SparkSessions
import org.apache.spark.sql.slackwater.protocol.{Coordinator, Wire}
import org.apache.spark.sql.slackwater.scan.execution.LocalRows
import org.apache.spark.sql.slackwater.values.Stored
import org.apache.spark.sql.sources.InsertableRelation
import org.apache.spark.sql.types.{LongType, StructType}

/** A collection that may be written. */
private[slackwater] trait WriteTarget extends Table {
  def coordinator: Coordinator

  /** The types of the rows that a write brings. */
  def dataSchema: StructType

  /** What reads that end in a write of this table keep others' writes away from. */
  def lockedId: String

  /** Says in the request of a write what is written. */
  def address(request: ObjectNode): Unit

  /** All rows are there: commits them, or keeps them until it is to. */
  def take(rows: WrittenRows): Unit
}

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

/** How a write changes the table. */
private[slackwater] sealed abstract class WriteMode(val name: String)

private[slackwater] object WriteMode {
  case object Append extends WriteMode("append")
  case object Overwrite extends WriteMode("overwrite")
  case object Diff extends WriteMode("diff")
}

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
    body.put("mode", mode.name)
    val small = fitting(parts, sink)
    val inline = body.putArray("inline")
    small.flatMap(_.inline).foreach(bytes => inline.add(Wire.base64(bytes)))
    val files = body.putArray("files")
    small.flatMap(_.files).foreach(file => describe(files.addObject(), file))
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

  private def describe(node: ObjectNode, file: WrittenFile): Unit = {
    val _ = node
      .put("uri", file.uri)
      .put("rows", file.rows)
      .put("size_bytes", file.sizeBytes)
      .put("modified_ms", file.modifiedMs)
  }
}

private[slackwater] object TableWrite {
  def diffSchema(schema: StructType): StructType =
    schema.add(Wire.DiffColumn, LongType, nullable = false)
}

/** A table that an INSERT writes, and how. */
private[slackwater] final case class Target(table: WriteTarget, mode: WriteMode) {
  override def toString: String = s"${mode.name} ${table.name}"
}

/** `INSERT` and its overwriting forms, `TRUNCATE`, and DataFrame writes. */
private[slackwater] final class InsertBuilder(table: WriteTarget)
    extends WriteBuilder
    with SupportsTruncate {
  private var mode: WriteMode = WriteMode.Append
  override def truncate(): WriteBuilder = {
    mode = WriteMode.Overwrite
    this
  }
  override def build(): V1Write = new Insert(table, mode)
}

private[slackwater] final class Insert(table: WriteTarget, mode: WriteMode) extends V1Write {
  override def description: String = s"${mode.name} ${table.name}"
  override def toString: String = description
  override def toInsertableRelation: InsertableRelation = (data: DataFrame, _: Boolean) =>
    Insert.run(table, mode, data.asInstanceOf[Dataset[_]].queryExecution)
}

private[slackwater] object Insert {

  /** Runs the query once, and writes its rows at the timestamp at which it read. */
  def run(table: WriteTarget, mode: WriteMode, query: QueryExecution): Unit = {
    val scope = new BindScope(Seq(table.lockedId))
    try {
      val plan = BindScope.within(scope)(query.executedPlan)
      table.take(rows(Target(table, mode), query.sparkSession, plan, scope.holds))
    } catch {
      case failure: Throwable =>
        scope.holds.foreach(_.release())
        throw failure
    }
  }

  /** Runs several queries, and writes the rows of each at the one time at which all of them read.
    *
    * `bound` gives the queries as they are read under the scope. Nothing is written if one fails.
    */
  def together(targets: Seq[Target], session: SparkSession)(
      bound: BindScope => Seq[LogicalPlan]
  ): Unit = {
    val scope = new BindScope(targets.map(_.table.lockedId).distinct)
    try {
      val written = targets.zip(bound(scope)).map { case (target, query) =>
        query.setAnalyzed()
        val plan = BindScope.within(scope)(session.sessionState.executePlan(query).executedPlan)
        rows(target, session, plan, Nil)
      }
      val body = SparkSessions.request(session).put("write_id", UUID.randomUUID.toString)
      val hold = scope.holds.headOption
      hold.fold(body.putNull("hold"))(h => body.put("hold", h.name))
      val writes = body.putArray("writes")
      written.foreach(_.describe(writes.addObject()))
      targets.head.table.coordinator.call("/v1/write", body)
      hold.foreach(_.consumed())
    } finally scope.holds.foreach(_.release())
  }

  private def rows(
      target: Target,
      session: SparkSession,
      plan: SparkPlan,
      holds: => Seq[Hold]
  ): WrittenRows = {
    val write = new TableWrite(session, target.table, target.mode)
    lazy val sink = write.sink(InlineLimit.statement)
    val parts = LocalRows.of(plan) match {
      case Some(rows) if fits(rows) => Seq(local(rows, write.schema))
      case Some(rows)               => Seq(sink.drain(0, rows.iterator))
      case None                     => distributed(plan, write)
    }
    new WrittenRows(write, holds, parts, sink)
  }

  /** Leaves the table empty. */
  def nothing(table: WriteTarget): Unit = {
    val write = new TableWrite(SparkSession.active, table, WriteMode.Overwrite)
    val _ = write.commit(None, Nil, throw new IllegalStateException("no rows need no file"))
  }

  private def fits(rows: Array[InternalRow]): Boolean = rows.length <= InlineLimit.statement.rows

  private def local(rows: Array[InternalRow], schema: StructType): Written =
    Written(Option.when(rows.nonEmpty)(Wire.encode(rows.iterator, schema)), rows.length.toLong, Nil)

  private def distributed(plan: SparkPlan, write: TableWrite): Seq[Written] = {
    val rows = plan.execute()
    Written.byJob(rows, write.sink(InlineLimit.ofTask(rows.getNumPartitions)))
  }
}
