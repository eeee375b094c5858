package org.apache.spark.sql.slackwater.scan

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.protocol.Wire
import org.apache.spark.sql.slackwater.scan.datasources.{Files, PartFile}
import org.apache.spark.sql.slackwater.scan.logical.BoundScan
import org.apache.spark.sql.slackwater.values.Stored
import org.apache.spark.sql.types._

/** How the rows of a bound scan came about. The scan has all changes after a time, each at its own,
  * if the collection could be read at that time too when the scan was bound.
  *
  * @param columns
  *   what is wanted of each row
  */
private[slackwater] final class Changes(
    session: SparkSession,
    scan: BoundScan,
    columns: StructType
) {

  /** Its rows at its time. */
  def contents: LogicalPlan = {
    val output = columns.map(field => scan.output.find(_.name == field.name).get)
    Project(output, PartScan.snapshot(session, scan, AttributeSet(output)))
  }

  /** No rows. */
  def none: LogicalPlan = LocalRelation(contents.output)

  /** `rows` as changes that add them at the scan's time. */
  def added(rows: LogicalPlan): LogicalPlan = {
    val time = Alias(Literal(scan.identity.asOf, LongType), "mz_timestamp")()
    Project(Seq(time, Alias(Literal(1L), "mz_diff")()) ++ rows.output, rows)
  }

  /** What has changed after `time` (ms): the time of a change, its diff, the row. Of one time and row
    * there is one change, whose diff is not zero.
    */
  def after(time: Long): LogicalPlan = {
    val changes = consolidated(time)
    val at = PartScan.attribute(changes, Wire.TimeColumn)
    val first = Seq(Alias(at, "mz_timestamp")(), Alias(changes.output.last, "mz_diff")())
    Project(first ++ named(changes), changes)
  }

  /** The rows that came after `time` (ms), each as often as it came. */
  def insertsAfter(time: Long): LogicalPlan = {
    val changes = consolidated(time)
    val came = Filter(GreaterThan(changes.output.last, Literal(0L)), changes)
    Project(named(changes), ReplicateByMultiplicity.of(came, came.output.last))
  }

  /** What has changed after `time` (ms), in Spark's form: each row that came or went, how, and when; under
    * the attributes of `output`.
    */
  def log(time: Long, output: Seq[AttributeReference]): LogicalPlan = {
    val changes = consolidated(time)
    val (at, diff) = (PartScan.attribute(changes, Wire.TimeColumn), changes.output.last)
    val kind = If(GreaterThan(diff, Literal(0L)), Literal("insert"), Literal("delete"))
    val all = values(changes) ++ Seq(kind, at, MillisToTimestamp(at))
    val named = all.zip(output).map { case (value, wanted) =>
      Alias(value, wanted.name)(wanted.exprId, wanted.qualifier, Some(wanted.metadata))
    }
    Project(named, ReplicateByMultiplicity.of(changes, Abs(diff, failOnError = false)))
  }

  private def consolidated(time: Long): LogicalPlan = {
    val stored = scan.parts.schema
    val range = scan.parts.json.deepCopy[ObjectNode]()
    range.put("lower", time + 1).put("upper", scan.identity.asOf + 1)
    val updates = PartScan.updates(session, scan.label, stored, range)
    Consolidate.changes(updates, Files.of(range).filter(Changes.isAfter(_, time)))
  }

  private def named(changes: LogicalPlan): Seq[NamedExpression] =
    values(changes).zip(columns).map { case (value, field) => Alias(value, field.name)() }

  private def values(changes: LogicalPlan): Seq[Attribute] =
    columns.map(field => PartScan.attribute(changes, Stored.column(field.name)))
}

private[slackwater] object Changes {

  /** Whether there may be a change after `time` (ms), until the time of the scan. */
  def any(scan: BoundScan, time: Long): Boolean = {
    val until = scan.identity.asOf
    Files.of(scan.parts.json).exists { file =>
      isAfter(file, time) && file.uniform.forall(_.time <= until)
    } || InlineUpdates.of(scan.parts, new StructType()).exists { update =>
      update.time > time && update.time <= until
    }
  }

  private def isAfter(file: PartFile, time: Long): Boolean =
    file.uniform.map(_.time).orElse(file.lastTime).forall(_ > time)
}
