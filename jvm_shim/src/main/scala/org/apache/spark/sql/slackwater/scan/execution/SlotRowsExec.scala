package org.apache.spark.sql.slackwater.scan.execution

import org.apache.spark.{Partition, SparkContext, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.physical.{Partitioning, SinglePartition}
import org.apache.spark.sql.execution.LeafExecNode

/** One partition, so that nothing above it has to be shuffled. */
private[slackwater] final case class SlotRowsExec(name: String, output: Seq[Attribute])
    extends LeafExecNode {
  override def outputPartitioning: Partitioning = SinglePartition
  override protected def doExecute(): RDD[InternalRow] = new SlotRDD(sparkContext, name)
}

private object SlotPartition extends Partition {
  override def index: Int = 0
}

private final class SlotRDD(context: SparkContext, name: String)
    extends RDD[InternalRow](context, Nil) {
  override protected def getPartitions: Array[Partition] = Array(SlotPartition)
  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] =
    Slots.rows(name)
}
