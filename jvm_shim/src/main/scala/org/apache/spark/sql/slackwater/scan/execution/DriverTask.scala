package org.apache.spark.sql.slackwater.scan.execution

import java.util.Properties
import java.util.concurrent.atomic.AtomicLong

import org.apache.spark.{NarrowDependency, SparkEnv, TaskContext, TaskContextImpl}
import org.apache.spark.executor.TaskMetrics
import org.apache.spark.memory.TaskMemoryManager
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  Expression,
  Nondeterministic,
  UserDefinedExpression
}
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec
import org.apache.spark.sql.execution.metric.SQLMetrics
import org.apache.spark.sql.execution.window.WindowExecBase
import org.apache.spark.sql.internal.SQLConf

/** Runs another plan as it is; it needs a job where that one does. */
private[slackwater] trait RunsPlan extends SparkPlan {
  def child: SparkPlan
}

/** What a task does, done by the thread of the driver that wants it: for few rows it takes longer to
  * schedule a job than to compute them.
  */
private[slackwater] object DriverTask {

  /** Of so many rows at most a plan is computed here. */
  private val mostRows = 10000

  /** Of so many rows at most it is not compiled. */
  private val mostInterpreted = 1000

  /** Tasks of jobs count upwards from 0; memory is accounted by this number. */
  private val attempts = new AtomicLong(-1)

  /** The rows of a plan that has them in the driver, or makes them of few that are there; else what a
    * job runs over. The plan is executed once.
    */
  def execute(plan: SparkPlan): Either[RDD[InternalRow], Array[InternalRow]] =
    present(plan).map(Right(_)).getOrElse {
      val few = isPossible(plan)
      val made = plan.execute()
      if (few && isNarrow(made)) Right(computed(plan, made)) else Left(made)
    }

  /** The same rows; None: it needs a job. */
  def rows(plan: SparkPlan): Option[Array[InternalRow]] =
    if (hasRows(plan) || isPossible(plan)) execute(plan).toOption else None

  /** The rows of a plan that has them in the driver, however many; None: they are to be computed. */
  def present(plan: SparkPlan): Option[Array[InternalRow]] =
    Option.when(hasRows(plan))(plan.executeCollect())

  private def hasRows(plan: SparkPlan): Boolean = plan match {
    case _: LocalTableScanExec | _: InlineRowsExec | _: CommandResultExec => true
    case root: RunsPlan                                                   => hasRows(root.child)
    case join: IndexLookupJoinExec                                        => hasRows(join.child)
    case _                                                                => false
  }

  /** The plan of an action, without adaptive execution where it is computed here and not compiled:
    * that would plan nothing else, and compile it, run it in another thread, and describe it anew.
    */
  def unadapted(plan: SparkPlan): SparkPlan = plan match {
    case adaptive: AdaptiveSparkPlanExec if isPossible(adaptive) =>
      interpreted(adaptive.initialPlan).getOrElse(adaptive)
    case other => other
  }

  private def computed(plan: SparkPlan, made: RDD[InternalRow]): Array[InternalRow] = {
    val known = if (isFew(plan)) interpretedIn(plan.conf) else propertiesOf(plan.conf)
    val all = run(known) { context =>
      made.partitions.flatMap(made.iterator(_, context).map(_.copy()))
    }
    post(plan)
    all
  }

  /** Whether the plan may be computed here, where its rows are in one task. */
  def isPossible(plan: SparkPlan): Boolean = plan match {
    case local: InlineRowsExec     => local.rows.sizeIs <= mostRows
    case local: LocalTableScanExec => local.rows.sizeIs <= mostRows
    case range: RangeExec          => range.numElements <= mostRows
    // What it plans anew while it runs is what shuffles have brought, and there are none.
    case adaptive: AdaptiveSparkPlanExec                  => isPossible(adaptive.initialPlan)
    case _: WholeStageCodegenExec | _: InputAdapter       => plan.children.forall(isPossible)
    case _: OnePartitionExec | _: UnionExec | _: RunsPlan => plan.children.forall(isPossible)
    case _: IndexLookupJoinExec                           => plan.children.forall(isPossible)
    case _: ProjectExec | _: FilterExec | _: BaseAggregateExec | _: SortExec | _: BaseLimitExec |
        _: WindowExecBase =>
      !plan.expressions.exists(_.exists(mayWait)) && plan.children.forall(isPossible)
    case _ => false
  }

  /** A plan that computes the same without being compiled; None: it is over so many rows that to
    * compile it takes less time. It has metrics of its own.
    */
  def interpreted(plan: SparkPlan): Option[SparkPlan] =
    Option.when(isFew(plan)) {
      plan.transformUp {
        case stage: WholeStageCodegenExec => stage.child
        case input: InputAdapter          => input.child
      }
    }

  /** Whether it is over so few rows that to compile it takes longer than to compute it. */
  private def isFew(plan: SparkPlan): Boolean = plan
    .collectLeaves()
    .map {
      case local: InlineRowsExec     => BigInt(local.rows.size)
      case local: LocalTableScanExec => BigInt(local.rows.size)
      case range: RangeExec          => range.numElements
      case _                         => BigInt(Long.MaxValue)
    }
    .sum <= mostInterpreted

  /** Functions of users and methods that are called by name may do anything: in a job they can be
    * cancelled.
    */
  private def mayWait(expression: Expression): Boolean = expression match {
    case _: UserDefinedExpression | _: Nondeterministic => true
    case _                                              => false
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

  /** What tasks know of the session, of plans that are not compiled. */
  def interpretedIn(conf: SQLConf): Properties = {
    val properties = propertiesOf(conf)
    properties.setProperty(SQLConf.CODEGEN_FACTORY_MODE.key, "NO_CODEGEN")
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
