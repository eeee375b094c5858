package org.apache.spark.sql.slackwater.binding.execution

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, SortOrder}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.plans.physical.{Partitioning, SinglePartition}
import org.apache.spark.sql.execution.{QueryExecution, SparkPlan}
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec
import org.apache.spark.sql.execution.columnar.InMemoryRelation
import org.apache.spark.sql.execution.datasources.v2.V2CommandExec
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec
import org.apache.spark.sql.slackwater.binding.CallSite
import org.apache.spark.sql.slackwater.binding.logical.{Statement, StatementBinding}
import org.apache.spark.sql.slackwater.hold.Holds
import org.apache.spark.sql.slackwater.scan.execution.{InlineRowsExec, RunsPlan}
import org.apache.spark.sql.slackwater.shims.Executions

/** Runs a bound query: once with the bind that it was planned with, then each time with a new one.
  *
  * Spark keeps the physical plan of a DataFrame, so that a second `collect()` executes it again. For
  * Spark it is a command, because adaptive execution then begins below it.
  *
  * @param asking
  *   a second child until adaptive execution has planned it, which alone tells a plan whose it is
  * @param query
  *   whose plan this is: it keeps an RDD, which is not to be the one of the next action
  */
private[slackwater] final case class StatementExec(
    child: SparkPlan,
    planned: StatementBinding,
    asking: Option[SparkPlan] = None,
    @transient query: Option[QueryExecution] = None
) extends V2CommandExec
    with RunsPlan {
  @transient private var latest: Option[SparkPlan] = None
  @transient private var binding = planned

  override def children: Seq[SparkPlan] = current +: asking.toSeq
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = current.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = current.outputOrdering
  override def nodeName: String = Statement.Name
  override protected def stringArgs: Iterator[Any] = Iterator.empty
  override protected def withNewChildrenInternal(
      newChildren: IndexedSeq[SparkPlan]
  ): StatementExec = newChildren.lift(1) match {
    case Some(told: AdaptiveSparkPlanExec) =>
      copy(child = newChildren.head, asking = None, query = Some(told.context.qe))
    case other => copy(child = newChildren.head, asking = other)
  }

  override protected def run(): Seq[InternalRow] = executeCollect().toSeq
  override def executeCollect(): Array[InternalRow] = limited(_.executeCollect())
  override def executeToIterator(): Iterator[InternalRow] = followed().executeToIterator()
  override def executeTake(limit: Int): Array[InternalRow] = limited(_.executeTake(limit))
  override def executeTail(limit: Int): Array[InternalRow] = limited(_.executeTail(limit))
  private[spark] override def executeCollectIterator(): (Long, Iterator[InternalRow]) =
    followed().executeCollectIterator()
  override protected def doExecute(): RDD[InternalRow] = {
    Executions.forget(this)(executeQuery(doExecute()))
    query.foreach(Executions.forgetRdd)
    val rows = followed().execute()
    limit.filter(_ => CallSite.collectArrow).fold(rows)(_.of(rows))
  }

  /** Spark does this as an action begins: before it prepares the plan, which would start the
    * subqueries of an old one.
    */
  override def resetMetrics(): Unit = if (binding.fresh) super.resetMetrics() else renew()

  private def current: SparkPlan = latest.getOrElse(child)

  private def started(): SparkPlan = synchronized {
    if (!binding.fresh) renew()
    binding.use()
    current
  }

  /** The same, where the rows are taken after this has returned. */
  private def followed(): SparkPlan = {
    val plan = started()
    if (limit.isDefined) ScannedRows.follow(plan.session)
    plan
  }

  private def limit: Option[ResultLimit] = binding.resultBytes.map(ResultLimit(_))

  private def limited(action: SparkPlan => Array[InternalRow]): Array[InternalRow] = {
    val plan = started()
    val rows = limit.fold(action(plan))(_.collect(plan)(action))
    Holds.returned(session, rows.length)
    if (limit.isDefined) ScannedRows.tell(plan)
    rows
  }

  private def renew(): Unit = synchronized {
    val query = planned.again()
    query.executedPlan match {
      case root: StatementExec =>
        latest = Some(root.child)
        binding = root.planned
      case other =>
        latest = Some(other)
        binding = planned.renewed
    }
  }
}

private[slackwater] object StatementExec {

  /** The root of a statement's plan, from the strategy on. */
  def of(statement: Statement, below: SparkPlan): StatementExec = {
    if (readsCache(statement.child)) statement.binding.strategy.foreach(_.otherwise())
    val asking = Option.when(below.conf.adaptiveExecutionEnabled) {
      val exchange =
        ShuffleExchangeExec(SinglePartition, InlineRowsExec(Statement.Name, Nil, Nil))
      exchange.setLogicalLink(statement)
      exchange
    }
    new StatementExec(below, statement.binding, asking)
  }

  /** Whether rows of collections come from Spark's cache. */
  private def readsCache(plan: LogicalPlan): Boolean = {
    var found = false
    plan.foreachWithSubqueries {
      case cached: InMemoryRelation =>
        found ||= cached.cacheBuilder.cachedPlan.exists(_.isInstanceOf[StatementExec])
      case _ =>
    }
    found
  }
}
