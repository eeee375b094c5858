package org.apache.spark.sql.slackwater.write

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, JoinedRow}
import org.apache.spark.sql.catalyst.util.{RowDeltaUtils, WriteDeltaProjections}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.MetadataColumn
import org.apache.spark.sql.connector.expressions.{Expressions, NamedReference}
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.slackwater.hold.{Hold, Holds}
import org.apache.spark.sql.slackwater.protocol.DataErrors
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

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
    override def build(): DeltaWrite = new DiffWrite(table, command, hold)
  }
}

/** What `DiffWriteExec` runs. */
private[slackwater] final class DiffWrite(
    table: WriteTarget,
    val command: RowLevelOperation.Command,
    hold: Option[Hold]
) extends DeltaWrite {
  override def description: String = s"diffs of ${table.name}"
  override def toString: String = description

  /** Spark's own operator would run a job for a single row. */
  override def toBatch: DeltaBatchWrite = throw new UnsupportedOperationException(description)

  /** Commits the diffs that `operations` makes of the rows of a plan. */
  def run(session: SparkSession, plan: SparkPlan, operations: Operations): Unit = {
    val target = Target(table, WriteMode.Diff)
    try WrittenRows.of(target, session, plan, hold.toSeq)(operations).commit()
    catch {
      case failure: Throwable =>
        // The end of an execution says with which failure, and comes just after.
        if (Holds.executionOf(session).isEmpty) hold.foreach(_.release())
        throw failure
    }
  }
}

/** Rows of operations as Spark plans them, as rows with diffs.
  *
  * `retracted` and `added` count them.
  */
private[slackwater] final class Operations(
    projections: WriteDeltaProjections,
    retracted: SQLMetric,
    added: SQLMetric
) extends (Iterator[InternalRow] => Iterator[InternalRow])
    with Serializable {
  override def apply(rows: Iterator[InternalRow]): Iterator[InternalRow] = {
    val minus = new GenericInternalRow(Array[Any](-1L))
    val plus = new GenericInternalRow(Array[Any](1L))
    val joined = new JoinedRow()
    val old = projections.rowIdProjection
    lazy val whole = projections.rowProjection.get
    lazy val width = old.schema.head.dataType.asInstanceOf[StructType].length
    rows.map { row =>
      row.getInt(0) match {
        case RowDeltaUtils.DELETE_OPERATION =>
          retracted += 1
          old.project(row)
          joined(old.getStruct(0, width), minus)
        case RowDeltaUtils.INSERT_OPERATION | RowDeltaUtils.REINSERT_OPERATION =>
          added += 1
          whole.project(row)
          joined(whole, plus)
        // RowLevel wants an update as two rows.
        case other => throw new IllegalStateException(s"operation $other")
      }
    }
  }
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
