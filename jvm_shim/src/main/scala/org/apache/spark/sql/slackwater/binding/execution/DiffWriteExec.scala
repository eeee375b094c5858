package org.apache.spark.sql.slackwater.binding.execution

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta
import org.apache.spark.sql.catalyst.util.WriteDeltaProjections
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.write.RowLevelOperation.Command
import org.apache.spark.sql.execution.{SparkPlan, SQLExecution, UnaryExecNode}
import org.apache.spark.sql.execution.datasources.v2.{
  DataSourceV2Strategy,
  V2CommandExec,
  WriteDeltaExec
}
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.sql.slackwater.write.{DiffWrite, Operations}

/** UPDATE, DELETE and MERGE of our tables. Over few rows that are in the driver it is no job, as
  * Spark's own operator always is.
  */
private[slackwater] final case class DiffWriteExec(
    child: SparkPlan,
    write: DiffWrite,
    projections: WriteDeltaProjections,
    refreshCache: () => Unit
) extends V2CommandExec
    with UnaryExecNode {
  private val retracted = SQLMetrics.createMetric(sparkContext, "number of deleted rows")
  private val added = SQLMetrics.createMetric(sparkContext, "number of updated rows")

  /** Of a MERGE the operator that makes its rows says more. */
  override lazy val metrics: Map[String, SQLMetric] = write.command match {
    case Command.DELETE => Map("numDeletedRows" -> retracted)
    case Command.UPDATE => Map("numUpdatedRows" -> added)
    case Command.MERGE  => Map.empty
  }

  override def output: Seq[Attribute] = Nil
  override def nodeName: String = "SlackwaterDiffs"
  override protected def stringArgs: Iterator[Any] = Iterator(child, write)

  override protected def run(): Seq[InternalRow] = {
    val operations = new Operations(projections, retracted, added)
    write.run(session.asInstanceOf[SparkSession], child, operations)
    val execution = sparkContext.getLocalProperty(SQLExecution.EXECUTION_ID_KEY)
    SQLMetrics.postDriverMetricUpdates(sparkContext, execution, metrics.values.toSeq)
    refreshCache()
    Nil
  }

  override protected def withNewChildInternal(newChild: SparkPlan): DiffWriteExec =
    copy(child = newChild)
}

private[slackwater] object DiffWriteExec {

  /** In place of what Spark plans for a write of diffs. */
  def of(delta: WriteDelta, write: DiffWrite): Seq[SparkPlan] =
    new DataSourceV2Strategy(SparkSession.active)(delta).collect { case planned: WriteDeltaExec =>
      DiffWriteExec(planned.query, write, planned.projections, planned.refreshCache)
    }
}
