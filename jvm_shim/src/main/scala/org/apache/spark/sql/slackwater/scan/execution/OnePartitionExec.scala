package org.apache.spark.sql.slackwater.scan.execution

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.physical.{Partitioning, SinglePartition}
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}

/** All rows of `child` in one partition, without a shuffle.
  *
  * There is one also if `child` has none: an aggregate without groups has a row for it.
  */
private[slackwater] final case class OnePartitionExec(child: SparkPlan) extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = SinglePartition
  override protected def doExecute(): RDD[InternalRow] = {
    val rows = child.execute()
    if (rows.getNumPartitions == 0) sparkContext.parallelize(Seq.empty[InternalRow], 1)
    else rows.coalesce(1)
  }
  override protected def withNewChildInternal(newChild: SparkPlan): OnePartitionExec =
    copy(child = newChild)
}
