package org.apache.spark.sql.slackwater.scan

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes
import org.apache.spark.sql.catalyst.util.CharVarcharUtils
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.datasources._
import org.apache.spark.sql.slackwater.protocol.{ObjectStore, Wire}
import org.apache.spark.sql.slackwater.scan.datasources.{PartFile, PartFormat, PartIndex}
import org.apache.spark.sql.slackwater.scan.logical.{BoundParts, InlineRows}
import org.apache.spark.sql.slackwater.values.Stored
import org.apache.spark.sql.types.StructType

/** The leaves that parts become. */
private[slackwater] final class Sources(
    session: SparkSession,
    label: String,
    parts: BoundParts
) {
  val schema: StructType = parts.schema

  /** The rows of `files`, which must be all uniform or all with times inside. */
  def rows(files: Seq[PartFile], until: Option[Long] = None): Seq[LogicalPlan] =
    if (files.isEmpty) Nil
    else if (files.head.uniform.isDefined) Seq(scan(files, schema, new StructType()))
    else {
      val all = scan(files, Wire.updateSchema(schema), new StructType())
      val filtered = Sources.upTo(all, until)
      Seq(Project(filtered.output.take(schema.length), filtered))
    }

  /** The same with the columns `__time` and `__diff`. */
  def updates(files: Seq[PartFile]): Seq[LogicalPlan] =
    if (files.isEmpty) Nil
    else if (files.head.uniform.isDefined) Seq(scan(files, schema, Sources.updateColumns))
    else Seq(scan(files, Wire.updateSchema(schema), new StructType()))

  private def scan(files: Seq[PartFile], data: StructType, constants: StructType): LogicalPlan = {
    val index = new PartIndex(parts.json.path("id").asText, files, constants, parts.hold)
    val stored = Stored.schema(data)
    val format = new PartFormat(label)
    val relation = HadoopFsRelation(index, constants, stored, None, format, options(files))(session)
    val read = LogicalRelation(relation)
    if (stored == data) read
    else {
      val columns = read.output.take(data.length).zip(data).map { case (column, field) =>
        if (column.dataType == field.dataType) column
        else Alias(Stored.restored(column, field.dataType), field.name)()
      }
      Project(columns ++ read.output.drop(data.length), read)
    }
  }

  private def options(files: Seq[PartFile]): Map[String, String] = {
    val uri = ObjectStore.uri(files.head.status.getPath)
    Sources.options ++ ObjectStore.options(session.sparkContext, uri)
  }

  /** Rows that the binding carried; nothing where there are none, unless they are `needed`. */
  def local(rows: Seq[InternalRow], needed: Boolean): Seq[LogicalPlan] =
    if (rows.isEmpty && !needed) Nil
    else Seq(InlineRows(label, toAttributes(schema), rows, parts.strategy))

  def localUpdates(updates: Seq[InlineUpdate], needed: Boolean): Seq[LogicalPlan] =
    if (updates.isEmpty && !needed) Nil
    else {
      val whole = Wire.updateSchema(schema)
      val join = UnsafeProjection.create(whole)
      val extra = new GenericInternalRow(2)
      val joined = new JoinedRow()
      val rows = updates.map { update =>
        extra.setLong(0, update.time)
        extra.setLong(1, update.diff)
        join(joined(update.row, extra)).copy()
      }
      Seq(InlineRows(label, toAttributes(whole), rows, parts.strategy))
    }
}

private[slackwater] object Sources {

  /** The types that Spark computes with for columns of `schema`. */
  def stored(schema: StructType): StructType =
    CharVarcharUtils.replaceCharVarcharWithStringInSchema(schema)

  /** Of updates those at and before a time. */
  private[scan] def upTo(updates: LogicalPlan, until: Option[Long]): LogicalPlan =
    until.fold(updates) { time =>
      val isIn = LessThanOrEqual(PartScan.attribute(updates, Wire.TimeColumn), Literal(time))
      Filter(isIn, updates)
    }

  val updateColumns: StructType = Wire.updateSchema(new StructType())

  /** A collection's files are all there and whole: settings that skip such errors do not apply. */
  val options: Map[String, String] = Map(
    "ignoreMissingFiles" -> "false",
    "ignoreCorruptFiles" -> "false",
    "mergeSchema" -> "false",
    "datetimeRebaseMode" -> "CORRECTED",
    "int96RebaseMode" -> "CORRECTED"
  )
}
