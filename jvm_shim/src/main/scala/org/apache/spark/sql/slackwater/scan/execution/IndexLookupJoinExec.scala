package org.apache.spark.sql.slackwater.scan.execution

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeReference}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.plans.physical.{Partitioning, SinglePartition}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.metric.SQLMetrics
import org.apache.spark.sql.slackwater.scan.IndexJoin
import org.apache.spark.sql.slackwater.scan.logical.{IndexLookupJoin, InlineRows}

/** Collects the rows of `child`, looks up what they are joined with, and gives it as one partition.
  *
  * Where the rows turn out to be many, or the index cannot be read any more, the join is Spark's.
  */
private[slackwater] final case class IndexLookupJoinExec(
    child: SparkPlan,
    @transient join: IndexLookupJoin
) extends UnaryExecNode {
  override lazy val metrics =
    Map("numOutputRows" -> SQLMetrics.createMetric(sparkContext, "number of output rows"))

  // A value: tasks ask for it, where `join` is not.
  override val output: Seq[Attribute] =
    if (join.probeFirst) child.output ++ join.columns else join.columns ++ child.output
  override def outputPartitioning: Partitioning = SinglePartition
  override def nodeName: String = s"${IndexLookupJoin.Name} ${join.label}"
  override protected def stringArgs: Iterator[Any] = Iterator(output)

  override protected def doExecute(): RDD[InternalRow] = {
    val counter = longMetric("numOutputRows")
    found match {
      case Right(rows) =>
        counter += rows.size
        sparkContext.parallelize(rows, 1)
      case Left(plan) =>
        val rows = planned(plan).execute().map { row =>
          counter += 1
          row.copy()
        }
        rows.coalesce(1, shuffle = true)
    }
  }

  override def executeCollect(): Array[InternalRow] = found match {
    case Right(rows) =>
      longMetric("numOutputRows") += rows.size
      rows.toArray
    case Left(plan) => planned(plan).executeCollect()
  }

  /** The rows of the join, or a plan that has them. */
  private def found: Either[LogicalPlan, Seq[InternalRow]] = {
    val probes = DriverTask.rows(child).map(_.toSeq).getOrElse {
      val most = IndexJoin.mostProbes + 1
      child.execute().mapPartitions(_.take(most).map(_.copy())).collect().toSeq
    }
    if (probes.size > IndexJoin.mostProbes) Left(join.unindexed(join.probe))
    else
      IndexJoin
        .rows(session.asInstanceOf[SparkSession], join, child.output, probes)
        .map(_.toSeq)
        .toRight(join.unindexed(InlineRows(IndexLookupJoin.Name, attributes, probes)))
  }

  private def attributes: Seq[AttributeReference] =
    child.output.map(_.asInstanceOf[AttributeReference])

  private def planned(plan: LogicalPlan): SparkPlan = {
    plan.foreach(_.setAnalyzed())
    session.asInstanceOf[SparkSession].sessionState.executePlan(plan).executedPlan
  }

  override protected def withNewChildInternal(newChild: SparkPlan): IndexLookupJoinExec =
    copy(child = newChild)
}
