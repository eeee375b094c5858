package org.apache.spark.sql.slackwater.scan.execution

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.physical.{
  Partitioning,
  SinglePartition,
  UnknownPartitioning
}
import org.apache.spark.sql.execution.{LeafExecNode, SQLExecution}
import org.apache.spark.sql.execution.metric.SQLMetrics
import org.apache.spark.sql.slackwater.hold.ReadStrategy

private[slackwater] final case class InlineRowsExec(
    label: String,
    output: Seq[Attribute],
    @transient rows: Seq[InternalRow],
    @transient strategy: Option[ReadStrategy] = None
) extends LeafExecNode {

  override lazy val metrics =
    Map("numOutputRows" -> SQLMetrics.createMetric(sparkContext, "number of output rows"))

  override def nodeName: String = s"SlackwaterScan $label"
  override protected def stringArgs: Iterator[Any] = Iterator(output)

  @transient private lazy val unsafeRows: IndexedSeq[InternalRow] =
    if (rows.forall(_.isInstanceOf[UnsafeRow])) rows.toIndexedSeq
    else {
      val project = UnsafeProjection.create(output, output)
      rows.iterator.map(row => project(row).copy(): InternalRow).toIndexedSeq
    }

  @transient private lazy val slices: Int = {
    val bytes = unsafeRows.iterator.map(_.asInstanceOf[UnsafeRow].getSizeInBytes.toLong).sum
    val many = math.min(unsafeRows.size / 1024, session.leafNodeDefaultParallelism)
    math.max(many, 1 + (bytes / InlineRowsExec.mostOfTask).toInt)
  }

  override def outputPartitioning: Partitioning =
    if (slices == 1) SinglePartition else UnknownPartitioning(slices)

  override protected def doExecute(): RDD[InternalRow] = {
    strategy.foreach(_.otherwise())
    val counter = longMetric("numOutputRows")
    sparkContext.parallelize(unsafeRows, slices).map { row =>
      counter += 1
      row
    }
  }

  override def executeCollect(): Array[InternalRow] = counted(unsafeRows)
  override def executeTake(limit: Int): Array[InternalRow] = counted(unsafeRows.take(limit))
  override def executeTail(limit: Int): Array[InternalRow] = counted(unsafeRows.takeRight(limit))

  private def counted(result: Seq[InternalRow]): Array[InternalRow] = {
    strategy.foreach(_.otherwise())
    longMetric("numOutputRows").add(result.size)
    val execution = sparkContext.getLocalProperty(SQLExecution.EXECUTION_ID_KEY)
    SQLMetrics.postDriverMetricUpdates(sparkContext, execution, metrics.values.toSeq)
    result.toArray
  }
}

private[slackwater] object InlineRowsExec {

  /** So many bytes go with a task; Spark warns of more than a megabyte. */
  val mostOfTask: Long = 512L << 10
}
