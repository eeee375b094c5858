package org.apache.spark.sql.slackwater.catalog

import java.util

import scala.util.Try

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.connector.catalog.{
  CatalogV2Util,
  Column,
  SupportsRead,
  SupportsRowLevelOperations,
  SupportsWrite,
  Table,
  TableCatalog,
  TableCapability,
  TruncatableTable
}
import org.apache.spark.sql.connector.read.{Batch, Scan, ScanBuilder}
import org.apache.spark.sql.connector.write.{
  LogicalWriteInfo,
  RowLevelOperationBuilder,
  RowLevelOperationInfo,
  WriteBuilder
}
import org.apache.spark.sql.slackwater.protocol.{Coordinator, DataErrors, ObjectDescription}
import org.apache.spark.sql.slackwater.scan.Sources
import org.apache.spark.sql.slackwater.write.{Insert, InsertBuilder, WriteTarget, WrittenRows}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A collection; `asOf` (milliseconds) pins the time at which it is read.
  *
  * Spark never scans it: before each execution [[Binding]] puts the parts that are valid at the
  * statement's time into its place.
  */
class SlackwaterTable(
    val coordinator: Coordinator,
    val description: ObjectDescription,
    val asOf: Option[Long]
) extends SupportsRead
    with SupportsWrite
    with SupportsRowLevelOperations
    with TruncatableTable
    with WriteTarget {

  override def id: String = description.id
  override def name: String = DataErrors.nameOf(description)
  override def columns: Array[Column] = CatalogV2Util.structTypeToV2Columns(description.schema)
  override def properties: util.Map[String, String] = {
    import scala.jdk.CollectionConverters._
    (description.properties ++ description.comment.map(TableCatalog.PROP_COMMENT -> _)).asJava
  }
  override def toString: String = name

  override def lockedId: String = id
  override def address(request: ObjectNode): Unit = {
    val _ = request.put("table", id)
  }
  override def take(rows: WrittenRows): Unit = rows.commit()

  override def capabilities: util.Set[TableCapability] = util.EnumSet.of(
    TableCapability.BATCH_READ,
    TableCapability.V1_BATCH_WRITE,
    TableCapability.TRUNCATE,
    // RefuseStreams refuses it in words of ours.
    TableCapability.STREAMING_WRITE
  )

  /** The types that Spark computes with: CHAR and VARCHAR are annotated strings. */
  override def dataSchema: StructType = Sources.stored(description.schema)

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    () => new UnboundScan(this)

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = {
    requireWritable()
    new InsertBuilder(this)
  }

  override def newRowLevelOperationBuilder(
      info: RowLevelOperationInfo
  ): RowLevelOperationBuilder = {
    requireWritable()
    throw DataErrors.unbound(name)
  }

  override def truncateTable(): Boolean = {
    requireWritable()
    Insert.nothing(this)
    true
  }

  def requireWritable(): Unit =
    if (!description.writable) throw DataErrors.readOnly(name, description.kind)

  override def equals(other: Any): Boolean = other match {
    case that: SlackwaterTable =>
      getClass == that.getClass && description == that.description && asOf == that.asOf &&
      coordinator == that.coordinator
    case _ => false
  }
  override def hashCode: Int = (description.id, asOf).hashCode
}

/** A collection as DESCRIBE shows it: without the column by which rows are changed. */
class DescribedTable(table: SlackwaterTable) extends Table {
  override def name: String = table.name
  override def columns: Array[Column] = table.columns
  override def properties: util.Map[String, String] = table.properties
  override def capabilities: util.Set[TableCapability] = table.capabilities
}

/** What DESCRIBE EXTENDED asks for statistics. Nobody may read it. */
private final class UnboundScan(table: SlackwaterTable) extends Scan {
  override def readSchema: StructType = table.dataSchema
  override def description: String = s"${table.name}, not bound to a time"
  override def toBatch: Batch = throw DataErrors.unbound(table.name)
}

object SlackwaterTable {

  /** The time (ms) that a version of a collection is. Raises SLACKWATER_INVALID_AS_OF. */
  def version(text: String): Long =
    Try(text.trim.toLong).toOption.filter(_ >= 0).getOrElse {
      throw DataErrors.invalidAsOf(
        s"VERSION $text",
        "the versions of a collection are its times"
      )
    }
}
