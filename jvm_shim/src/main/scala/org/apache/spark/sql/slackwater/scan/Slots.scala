package org.apache.spark.sql.slackwater.scan

import org.apache.spark.{Partition, SparkContext, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.MultiInstanceRelation
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeReference}
import org.apache.spark.sql.catalyst.plans.logical.{LeafNode, LogicalPlan, Statistics}
import org.apache.spark.sql.catalyst.plans.physical.{Partitioning, SinglePartition}
import org.apache.spark.sql.execution.{LeafExecNode, SparkPlan, UnaryExecNode}

/** Rows that are handed in anew each time a compiled plan runs. Their plan is made once. */
private[slackwater] final case class SlotRows(
    name: String,
    override val output: Seq[AttributeReference]
) extends LeafNode
    with MultiInstanceRelation {
  override def newInstance(): LogicalPlan = copy(output = output.map(_.newInstance()))
  override def computeStats(): Statistics = Statistics(sizeInBytes = 1024)
}

/** One partition, so that nothing above it has to be shuffled. */
private[slackwater] final case class SlotRowsExec(name: String, output: Seq[Attribute])
    extends LeafExecNode {
  override def outputPartitioning: Partitioning = SinglePartition
  override protected def doExecute(): RDD[InternalRow] = new SlotRDD(sparkContext, name)
}

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

private object SlotPartition extends Partition {
  override def index: Int = 0
}

private final class SlotRDD(context: SparkContext, name: String)
    extends RDD[InternalRow](context, Nil) {
  override protected def getPartitions: Array[Partition] = Array(SlotPartition)
  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] =
    Slots.rows(name)
}

/** What the slots of the plan that this thread is running hold. */
private[slackwater] object Slots {
  private val filled = new ThreadLocal[scala.collection.Map[String, () => Iterator[InternalRow]]]

  def rows(name: String): Iterator[InternalRow] = filled.get()(name)()

  def within[A](rows: scala.collection.Map[String, () => Iterator[InternalRow]])(body: => A): A = {
    val outer = filled.get
    filled.set(rows)
    try body
    finally if (outer == null) filled.remove() else filled.set(outer)
  }
}
