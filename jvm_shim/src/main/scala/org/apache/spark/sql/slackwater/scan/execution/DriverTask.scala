package org.apache.spark.sql.slackwater.scan.execution

import java.util.Properties
import java.util.concurrent.atomic.AtomicLong

import org.apache.spark.{NarrowDependency, SparkEnv, TaskContext, TaskContextImpl}
import org.apache.spark.executor.TaskMetrics
import org.apache.spark.memory.TaskMemoryManager
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.metric.SQLMetrics
import org.apache.spark.sql.internal.SQLConf

/** What a task does, done by the thread of the driver that wants it: for few rows it takes longer to
  * schedule a job than to compute them.
  */
private[slackwater] object DriverTask {

  /** Tasks of jobs count upwards from 0; memory is accounted by this number. */
  private val attempts = new AtomicLong(-1)

  /** The rows of a plan that has them in the driver, or makes few of few that are there; else what a
    * job runs over.
    */
  def execute(plan: SparkPlan): Either[RDD[InternalRow], Array[InternalRow]] =
    present(plan).map(Right(_)).getOrElse {
      partitions(plan)((_, rows) => rows.map(_.copy()).toArray).map(_.flatten.toArray)
    }

  /** What `body` makes of each partition of a plan that makes few rows of few that are in the driver,
    * in a task of this thread; else what a job runs over. When rows turn out to be many, `body` may
    * have been called in vain.
    */
  def partitions[A](plan: SparkPlan)(
      body: (TaskContext, Iterator[InternalRow]) => A
  ): Either[RDD[InternalRow], Seq[A]] =
    // Who has made this form knows the plan that a job is to have.
    if (FewRows.isInOneTask(plan)) Right(interpreted(plan)(body))
    else if (FewRows.isInterpreted(plan))
      inForm(plan)(interpreted(_)(body)).toRight(plan.execute())
    else {
      val made = plan.execute()
      if (FewRows.isPossible(plan) && isNarrow(made))
        Right(computed(plan, made, propertiesOf(plan.conf))(body))
      else Left(made)
    }

  /** The same rows; None: it needs a job. */
  def rows(plan: SparkPlan): Option[Array[InternalRow]] =
    if (hasRows(plan) || FewRows.isInOneTask(plan) || FewRows.isPossible(plan))
      execute(plan).toOption
    else None

  /** The rows of a plan that has them in the driver, however many; None: they are to be computed. */
  def present(plan: SparkPlan): Option[Array[InternalRow]] = plan match {
    case one: OnePartitionExec => present(one.child)
    case other                 => Option.when(hasRows(other))(other.executeCollect())
  }

  private def hasRows(plan: SparkPlan): Boolean = plan match {
    case _: LocalTableScanExec | _: InlineRowsExec | _: CommandResultExec => true
    case root: RunsPlan                                                   => hasRows(root.child)
    case join: IndexLookupJoinExec                                        => hasRows(join.child)
    case _                                                                => false
  }

  /** What `use` makes of a plan of the same rows that is not compiled and needs no job when it is given
    * to `execute` or `partitions`; None: `plan` has its rows, or is over many rows, or makes many, of
    * which `use` may have seen a part.
    *
    * Adaptive execution would plan nothing else, and compile it, run it in another thread, and
    * describe it anew.
    */
  def alone[A](plan: SparkPlan)(use: SparkPlan => A): Option[A] =
    if (hasRows(plan) || !FewRows.isInterpreted(plan)) None else inForm(plan)(use)

  private def inForm[A](plan: SparkPlan)(use: SparkPlan => A): Option[A] =
    try Some(use(FewRows.inOneTask(plan)))
    catch { case NeedsJob => None }

  private def interpreted[A](plan: SparkPlan)(
      body: (TaskContext, Iterator[InternalRow]) => A
  ): Seq[A] = {
    val made = plan.execute()
    if (!isNarrow(made)) throw NeedsJob
    if (made.getNumPartitions != 1)
      throw new IllegalStateException(s"${made.getNumPartitions} partitions in one task")
    computed(plan, made, interpretedIn(plan))(body)
  }

  private def computed[A](plan: SparkPlan, made: RDD[InternalRow], known: Properties)(
      body: (TaskContext, Iterator[InternalRow]) => A
  ): Seq[A] = {
    val all = run(known) { context =>
      made.partitions.toSeq.map(each => body(context, made.iterator(each, context)))
    }
    post(plan)
    all
  }

  /** Runs `body` as the one task of a stage, in this thread. */
  def run[A](properties: Properties)(body: TaskContext => A): A = {
    val env = SparkEnv.get
    val attempt = attempts.getAndDecrement()
    val memory = new TaskMemoryManager(env.memoryManager, attempt)
    val context = new TaskContextImpl(
      0,
      0,
      0,
      attempt,
      0,
      1,
      memory,
      properties,
      env.metricsSystem,
      TaskMetrics.empty
    )
    val outer = TaskContext.get()
    TaskContext.setTaskContext(context)
    var failure: Option[Throwable] = None
    try body(context)
    catch {
      case error: Throwable =>
        failure = Some(error)
        throw error
    } finally {
      try context.markTaskCompleted(failure)
      finally {
        if (outer == null) TaskContext.unset() else TaskContext.setTaskContext(outer)
        memory.cleanUpAllAllocatedMemory()
      }
    }
  }

  /** What tasks know of the session, of plans that are not compiled but for what the interpreter does
    * not do right.
    */
  private def interpretedIn(plan: SparkPlan): Properties = {
    val properties = propertiesOf(plan.conf)
    val mode = if (FewRows.keepsTextsInRows(plan)) "CODEGEN_ONLY" else "NO_CODEGEN"
    properties.setProperty(SQLConf.CODEGEN_FACTORY_MODE.key, mode)
    properties
  }

  /** What tasks know of the session. */
  def propertiesOf(conf: SQLConf): Properties = {
    val properties = new Properties()
    conf.getAllConfs.foreach { case (key, value) => properties.setProperty(key, value) }
    properties
  }

  /** Whether no stage comes before it. */
  def isNarrow(rdd: RDD[_]): Boolean = rdd.dependencies.forall {
    case narrow: NarrowDependency[_] => isNarrow(narrow.rdd)
    case _                           => false
  }

  /** Spark learns the metrics of a plan from its tasks. */
  private def post(plan: SparkPlan): Unit = {
    val context = plan.session.sparkContext
    val execution = context.getLocalProperty(SQLExecution.EXECUTION_ID_KEY)
    val metrics = plan.collect { case node => node.metrics.values }.flatten
    SQLMetrics.postDriverMetricUpdates(context, execution, metrics)
  }
}
