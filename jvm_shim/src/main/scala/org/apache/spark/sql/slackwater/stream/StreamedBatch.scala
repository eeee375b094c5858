package org.apache.spark.sql.slackwater.stream

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.MultiInstanceRelation
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeReference}
import org.apache.spark.sql.catalyst.plans.logical.{LeafNode, LogicalPlan, Statistics}
import org.apache.spark.sql.execution.{LeafExecNode, SparkPlan, SparkStrategy}
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}

/** What a stream reads in one batch: the changes after `after`, or the contents, until `until` (ms).
  *
  * Nothing is asked of the coordinator before it is executed: when a stream starts again Spark plans
  * the batch before, whose changes may be gone, only to tell the source of it.
  */
private[stream] final case class StreamedBatch(
    @transient reader: CollectionReader,
    after: Option[Long],
    until: Long,
    override val output: Seq[AttributeReference]
) extends LeafNode
    with MultiInstanceRelation {
  override def isStreaming: Boolean = true
  override def newInstance(): StreamedBatch = copy(output = output.map(_.newInstance()))
  override def computeStats(): Statistics = Statistics(conf.defaultSizeInBytes)
  override def simpleString(maxFields: Int): String = s"SlackwaterStream $label"
  def label: String = s"${reader.name} ${after.fold("")(time => s"after $time ")}until $until"
}

/** Spark takes the count of its rows for what the source has given. */
private[stream] final case class StreamedBatchExec(batch: StreamedBatch) extends LeafExecNode {
  override def output: Seq[Attribute] = batch.output
  override lazy val metrics: Map[String, SQLMetric] =
    Map("numOutputRows" -> SQLMetrics.createMetric(sparkContext, "number of output rows"))
  override def simpleString(maxFields: Int): String = s"SlackwaterStream ${batch.label}"

  override protected def doExecute(): RDD[InternalRow] = {
    val count = longMetric("numOutputRows")
    batch.reader.rows(batch.after, batch.until).mapPartitionsInternal { rows =>
      rows.map { row =>
        count += 1
        row
      }
    }
  }
}

/** Plans the batches of streams. */
object StreamStrategy extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case batch: StreamedBatch => Seq(StreamedBatchExec(batch))
    case _                    => Nil
  }
}
