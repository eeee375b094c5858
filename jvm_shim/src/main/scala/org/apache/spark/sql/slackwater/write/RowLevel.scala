package org.apache.spark.sql.slackwater.write

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, JoinedRow}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.MetadataColumn
import org.apache.spark.sql.connector.expressions.{Expressions, NamedReference}
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.slackwater.hold.{Hold, Holds}
import org.apache.spark.sql.slackwater.process.WriteProgress
import org.apache.spark.sql.slackwater.protocol.DataErrors
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.util.CollectionAccumulator

/** UPDATE, DELETE and MERGE as diffs: an old row goes with -1, a new one comes with +1.
  *
  * `hold` is what the statement reads under; the diffs are committed with it.
  */
private[slackwater] final class RowLevel(
    table: WriteTarget,
    override val command: RowLevelOperation.Command,
    wholeRow: String,
    hold: Option[Hold]
) extends RowLevelOperation
    with SupportsDelta {

  def holding(acquired: Option[Hold]): RowLevel = new RowLevel(table, command, wholeRow, acquired)

  override def description: String = s"$command ${table.name}"
  override def rowId: Array[NamedReference] = Array(Expressions.column(wholeRow))
  override def representUpdateAsDeleteAndInsert: Boolean = true
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    throw DataErrors.unbound(table.name)
  override def newWriteBuilder(info: LogicalWriteInfo): DeltaWriteBuilder = new DeltaWriteBuilder {
    override def build(): DeltaWrite = new DiffWrite(table, hold)
  }
}

private[slackwater] final class DiffWrite(table: WriteTarget, hold: Option[Hold])
    extends DeltaWrite {
  override def description: String = s"diffs of ${table.name}"
  override def toString: String = description
  override def toBatch: DeltaBatchWrite = new DiffBatch(SparkSession.active, table, hold)
}

private final class DiffBatch(session: SparkSession, table: WriteTarget, hold: Option[Hold])
    extends DeltaBatchWrite {
  private val write = new TableWrite(session, table, WriteMode.Diff)
  private lazy val sink = write.sink(InlineLimit.statement)
  // Messages of writers go through the application's serializer, which may know no class of ours.
  private val written = session.sparkContext.collectionAccumulator[Array[Byte]]

  private var progress: Option[WriteProgress] = None

  override def createBatchWriterFactory(info: PhysicalWriteInfo): DeltaWriterFactory = {
    val limited = sink.limitedTo(InlineLimit.ofTask(session.sparkContext, info.numPartitions))
    progress = Some(WriteProgress.begin(session, table.coordinator))
    new DiffWriterFactory(limited, written, table.columns.length)
  }

  private def over(failed: Boolean): Unit = {
    progress.foreach(_.end(failed))
    progress = None
  }

  override def commit(messages: Array[WriterCommitMessage]): Unit =
    try {
      over(failed = false)
      val parts = written.value.asScala.toSeq.map(Written.unpacked)
      val _ = write.commit(hold, parts, sink)
    } finally hold.foreach(_.release())

  /** The end of the execution says with which failure, and comes just after. */
  override def abort(messages: Array[WriterCommitMessage]): Unit = {
    over(failed = true)
    if (Holds.executionOf(session).isEmpty) hold.foreach(_.release())
  }
}

private final class DiffWriterFactory(
    sink: RowSink,
    written: CollectionAccumulator[Array[Byte]],
    width: Int
) extends DeltaWriterFactory {
  override def createWriter(partition: Int, task: Long): DeltaWriter[InternalRow] =
    new DiffWriter(sink.open(partition), written, width)
}

private final class DiffWriter(
    sink: RowSink#OpenSink,
    written: CollectionAccumulator[Array[Byte]],
    width: Int
) extends DeltaWriter[InternalRow] {
  private val minus = new GenericInternalRow(Array[Any](-1L))
  private val plus = new GenericInternalRow(Array[Any](1L))
  private val joined = new JoinedRow()

  override def delete(metadata: InternalRow, id: InternalRow): Unit =
    sink.write(joined(id.getStruct(0, width), minus))
  override def insert(row: InternalRow): Unit = sink.write(joined(row, plus))
  override def update(metadata: InternalRow, id: InternalRow, row: InternalRow): Unit = {
    delete(metadata, id)
    insert(row)
  }
  override def commit(): WriterCommitMessage = {
    written.add(Written.packed(sink.commit()))
    DiffWriter.noMessage
  }
  override def abort(): Unit = sink.abort()
  override def close(): Unit = ()
}

private object DiffWriter {
  val noMessage: WriterCommitMessage = null
}

/** The whole row as one value: what UPDATE, DELETE and MERGE retract. */
private[slackwater] final class WholeRowColumn(override val name: String, schema: StructType)
    extends MetadataColumn {
  override def dataType: DataType = schema
  override def isNullable: Boolean = false
}

private[slackwater] object WholeRowColumn {
  val Name = "__row"
}
