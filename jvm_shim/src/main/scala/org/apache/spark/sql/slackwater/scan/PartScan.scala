package org.apache.spark.sql.slackwater.scan

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.protocol.Wire
import org.apache.spark.sql.slackwater.scan.datasources.Files
import org.apache.spark.sql.slackwater.scan.logical.{BoundParts, BoundScan}
import org.apache.spark.sql.slackwater.values.Stored
import org.apache.spark.sql.types.{DataType, StructType}

/** Plans over the parts of a collection. */
private[slackwater] object PartScan {

  /** The rows at the scan's time, under the attributes that the statement knows them by; of its
    * columns, at least the `wanted` ones.
    */
  def snapshot(session: SparkSession, scan: BoundScan, wanted: AttributeSet): LogicalPlan = {
    val parts = scan.parts
    val asOf = scan.identity.asOf
    val timed = parts.json.path("time_filter").asBoolean
    val files = Files
      .of(parts.json)
      .filter(file => !timed || file.uniform.forall(_.time <= asOf))
    val embedded = files.filter(_.uniform.isEmpty)
    val uniform = files.filter(_.uniform.isDefined)
    def inline(schema: StructType): Seq[InlineUpdate] =
      InlineUpdates.of(parts, schema).filter(update => !timed || update.time <= asOf)
    if (!parts.json.path("retractions").asBoolean) {
      val sources = new Sources(session, scan.label, parts)
      val scans = sources.rows(uniform) ++ sources.rows(embedded, Option.when(timed)(asOf))
      val rows = union(scans ++ sources.local(inline(parts.schema).map(_.row), scans.isEmpty))
      project(rows, scan.output)
    } else {
      val output = scan.output.filter(wanted.contains)
      val columns = concerned(parts.schema, output)
      val narrowed = parts.copy(schema = Consolidate.withPruning(columns, parts.schema))
      val sources = new Sources(session, scan.label, narrowed)
      val until = Option.when(timed)(asOf)
      val rows = Consolidate.rows(sources, files, until, inline(narrowed.schema))
      project(rows, output)
    }
  }

  /** The rows of files that have each row as often as it is there, under the attributes of `output`. */
  def plain(
      session: SparkSession,
      label: String,
      output: Seq[AttributeReference],
      parts: BoundParts
  ): LogicalPlan =
    project(union(new Sources(session, label, parts).rows(Files.of(parts.json))), output)

  /** The columns of `schema` that `output` is made of.
    *
    * Diffs add up, so updates that are first cut to some columns and then consolidated are the same
    * multiset as consolidated rows that are cut.
    */
  private def concerned(schema: StructType, output: Seq[AttributeReference]): StructType = {
    val names = output.map(a => Stored.column(a.name)).toSet
    // Another name is the whole row, as row-level changes want it.
    if (!names.subsetOf(schema.names.toSet)) schema
    else StructType(schema.filter(field => names(field.name)))
  }

  /** The updates of a binding's relation, not consolidated: its columns, `__time`, `__diff`; under
    * the names of files, as `schema` has them.
    */
  def updates(
      session: SparkSession,
      name: String,
      schema: StructType,
      json: JsonNode
  ): LogicalPlan = {
    val lower = Wire.longOption(json.get("lower"))
    val upper = Wire.longOption(json.get("upper"))
    val advanceTo = Wire.longOption(json.get("advance_to"))
    def wanted(time: Long): Boolean = lower.forall(_ <= time) && upper.forall(time < _)

    val sources = new Sources(session, name, BoundParts(json, schema, None))
    val files = Files.of(json).filter(_.uniform.forall(u => wanted(u.time)))
    val (uniform, embedded) = files.partition(_.uniform.isDefined)
    val scans = sources.updates(uniform) ++ sources.updates(embedded).map { scan =>
      val time = attribute(scan, Wire.TimeColumn)
      val bounds = lower.map(l => GreaterThanOrEqual(time, Literal(l))) ++
        upper.map(u => LessThan(time, Literal(u)))
      bounds.reduceOption[Expression](And).fold(scan)(Filter(_, scan))
    }
    val inline =
      InlineUpdates.of(BoundParts(json, schema, None), schema).filter(u => wanted(u.time))
    val all = union(scans ++ sources.localUpdates(inline, scans.isEmpty))
    advanceTo.fold(all) { to =>
      val columns = all.output.map {
        case a if a.name == Wire.TimeColumn =>
          Alias(Greatest(Seq(a, Literal(to))), Wire.TimeColumn)()
        case a => a
      }
      Project(columns, all)
    }
  }

  def attribute(plan: LogicalPlan, name: String): Attribute =
    plan.output.find(_.name == name).get

  def union(plans: Seq[LogicalPlan]): LogicalPlan =
    if (plans.size == 1) plans.head else Union(plans)

  private def project(rows: LogicalPlan, output: Seq[AttributeReference]): LogicalPlan = {
    val byName = rows.output.map(a => a.name -> a).toMap
    val columns = output.map { wanted =>
      val value = byName.getOrElse(Stored.column(wanted.name), wholeRow(rows, wanted.dataType))
      Alias(value, wanted.name)(wanted.exprId, wanted.qualifier, Some(wanted.metadata))
    }
    Project(columns, rows)
  }

  /** The columns of `rows` may have another order than those of the row. */
  private def wholeRow(rows: LogicalPlan, dataType: DataType): Expression = {
    val names = dataType.asInstanceOf[StructType].fieldNames
    CreateNamedStruct(names.toSeq.flatMap { name =>
      Seq(Literal(name), attribute(rows, Stored.column(name)))
    })
  }
}
