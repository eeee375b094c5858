package org.apache.spark.sql.slackwater.binding.execution

import org.apache.spark.{SparkContext, SparkException, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, SortOrder, UnsafeRow}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec
import org.apache.spark.sql.slackwater.protocol.DataErrors
import org.apache.spark.sql.slackwater.scan.execution.{DriverTask, RunsPlan}
import org.apache.spark.util.AccumulatorV2

/** The most bytes that the rows of a query may have which an action brings to the driver.
  *
  * Rows are counted as they leave their tasks, so that what is too much ends before the driver has
  * all of it. Spark's own `spark.driver.maxResultSize` counts what is compressed, and knows neither
  * sessions nor statements.
  */
private[execution] final case class ResultLimit(bytes: Long) {

  /** What `action` brings of the rows of `plan`. Raises SLACKWATER_RESULT_SIZE. */
  def collect(
      plan: SparkPlan
  )(action: SparkPlan => Array[InternalRow]): Array[InternalRow] = {
    val rows = DriverTask.alone(plan)(counted(_)(action)).getOrElse {
      plan match {
        case adaptive: AdaptiveSparkPlanExec => adaptive.withFinalPlanUpdate(counted(_)(action))
        case other                           => counted(other)(action)
      }
    }
    if (rows.iterator.map(ResultCounter.sizeOf).sum > bytes) throw DataErrors.resultSize(bytes)
    rows
  }

  private def counted(
      plan: SparkPlan
  )(action: SparkPlan => Array[InternalRow]): Array[InternalRow] = {
    val counter = ResultCounter.of(plan.session.sparkContext, bytes)
    try action(ResultLimit.counting(plan, counter))
    catch {
      case _: SparkException if counter.value > bytes => throw DataErrors.resultSize(bytes)
    }
  }

  /** The rows of a query whose jobs end with an error when they are too much.
    *
    * What the last of several tasks brings is not counted in, if it is within the limit itself.
    */
  def of(rows: RDD[InternalRow]): RDD[InternalRow] =
    ResultLimit.counted(rows, ResultCounter.of(rows.sparkContext, bytes))
}

private object ResultLimit {

  /** The plan, whose rows are counted where they leave its tasks. Spark collects some plans in a way
    * of their own, whose rows are in the driver already or few.
    */
  private def counting(plan: SparkPlan, counter: ResultCounter): SparkPlan = plan match {
    case limit: CollectLimitExec => limit.copy(child = counting(limit.child, counter))
    case other if declares(other, "executeCollect") => other
    case other                                      => CountedRowsExec(other, counter)
  }

  private def declares(plan: SparkPlan, method: String): Boolean =
    plan.getClass.getMethod(method).getDeclaringClass != classOf[SparkPlan]

  def counted(rows: RDD[InternalRow], counter: ResultCounter): RDD[InternalRow] =
    rows.mapPartitionsInternal { found =>
      found.map { row =>
        counter.add(ResultCounter.sizeOf(row))
        row
      }
    }
}

/** The rows of `child`, counted. */
private final case class CountedRowsExec(child: SparkPlan, counter: ResultCounter)
    extends UnaryExecNode
    with RunsPlan {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering
  override protected def stringArgs: Iterator[Any] = Iterator.empty
  override protected def doExecute(): RDD[InternalRow] =
    ResultLimit.counted(child.execute(), counter)
  override def executeCollect(): Array[InternalRow] = here.getOrElse(super.executeCollect())
  override def executeTake(limit: Int): Array[InternalRow] =
    here.fold(super.executeTake(limit))(_.take(limit))
  override def executeTail(limit: Int): Array[InternalRow] =
    here.fold(super.executeTail(limit))(_.takeRight(limit))

  private def here: Option[Array[InternalRow]] = DriverTask.rows(this)
  override protected def withNewChildInternal(newChild: SparkPlan): CountedRowsExec =
    copy(child = newChild)
}

/** How many bytes the rows have that tasks have brought to the driver.
  *
  * A task that brings more than `limit` alone fails with SLACKWATER_RESULT_SIZE. When tasks bring
  * more together, `exceeded` is called in the driver with the stage, once they did.
  */
private final class ResultCounter(limit: Long, @transient exceeded: Int => Unit)
    extends AccumulatorV2[Long, Long] {
  private var bytes = 0L
  private var stage = -1

  override def isZero: Boolean = bytes == 0
  override def value: Long = bytes
  override def reset(): Unit = bytes = 0
  override def copy(): ResultCounter = {
    val other = new ResultCounter(limit, exceeded)
    other.bytes = bytes
    other.stage = stage
    other
  }

  override def add(more: Long): Unit = {
    if (stage < 0) Option(TaskContext.get()).foreach(task => stage = task.stageId())
    bytes += more
    if (bytes > limit) throw DataErrors.resultSize(limit)
  }

  override def merge(other: AccumulatorV2[Long, Long]): Unit = other match {
    case task: ResultCounter =>
      val before = bytes
      bytes += task.bytes
      if (before <= limit && bytes > limit) exceeded(task.stage)
    case _ => throw new IllegalArgumentException(other.getClass.getName)
  }
}

private object ResultCounter {
  def of(context: SparkContext, limit: Long): ResultCounter = {
    def end(stage: Int): Unit =
      context.cancelStage(stage, DataErrors.resultSize(limit).getMessage)
    val made = new ResultCounter(limit, end)
    context.register(made)
    made
  }

  /** Zero for a row that only Spark's own conversions know. */
  def sizeOf(row: InternalRow): Long = row match {
    case packed: UnsafeRow => packed.getSizeInBytes.toLong
    case _                 => 0L
  }
}
