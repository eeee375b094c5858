package org.apache.spark.sql.slackwater.scan.execution

import scala.util.control.NoStackTrace

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction
import org.apache.spark.sql.catalyst.optimizer.BuildRight
import org.apache.spark.sql.catalyst.plans.{InnerLike, LeftSingle}
import org.apache.spark.sql.catalyst.plans.physical.{Partitioning, SinglePartition}
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec
import org.apache.spark.sql.execution.datasources.v2.MergeRowsExec
import org.apache.spark.sql.execution.exchange.{Exchange, ReusedExchangeExec}
import org.apache.spark.sql.execution.joins._
import org.apache.spark.sql.execution.window.{WindowExecBase, WindowGroupLimitExec}
import org.apache.spark.sql.slackwater.values.Comparable

/** Runs another plan as it is; it needs a job where that one does. */
private[slackwater] trait RunsPlan extends SparkPlan {
  def child: SparkPlan
}

/** Plans over few rows that are in the driver, which one task may compute: which they are, and the
  * form in which they are not compiled and exchange nothing.
  */
private[execution] object FewRows {

  /** So many rows at most a leaf has, and whatever makes many of few. */
  private val mostRows = 10000L

  /** So many pairs at most a condition of a join is computed for. */
  private val mostPairs = 1000000L

  /** So many rows at most all leaves have where a plan that could be compiled is not: it would take
    * longer.
    */
  private val mostInterpreted = 1000L

  /** Whether one task may compute the plan. */
  def isPossible(plan: SparkPlan): Boolean = most(plan).isDefined

  /** Whether it does so by `inOneTask`. */
  def isInterpreted(plan: SparkPlan): Boolean = isPossible(plan) &&
    (isSmall(plan) || isOnlyInterpreted(plan))

  /** A plan of the same rows that is not compiled, and of which each operator has one partition: so it
    * needs no exchange, whatever the operators above expect of the rows. It raises `NeedsJob` when
    * there are many. It has metrics of its own.
    */
  def inOneTask(plan: SparkPlan): SparkPlan = plan.transformUp {
    case stage: WholeStageCodegenExec     => stage.child
    case input: InputAdapter              => input.child
    case adaptive: AdaptiveSparkPlanExec  => inOneTask(adaptive.initialPlan)
    case reused: ReusedExchangeExec       => renamed(inOneTask(reused.child), reused.output)
    case leaf: LeafExecNode               => OnePartitionExec(leaf)
    case union: UnionExec                 => OnePartitionExec(union)
    case exchange: Exchange               => exchange.child
    case coalesced: CoalesceExec          => coalesced.child
    case limit: CollectLimitExec          => GlobalLimitExec(limit.limit, limit.child, limit.offset)
    case first: TakeOrderedAndProjectExec =>
      val sorted = SortExec(first.sortOrder, global = false, first.child)
      ProjectExec(first.projectList, GlobalLimitExec(first.limit, sorted, first.offset))
    case join: BaseJoinExec   => BoundedRowsExec(joined(join), mostRows)
    case many if isMany(many) => BoundedRowsExec(many, mostRows)
  }

  /** Whether an aggregate or a window keeps a text from one row to another that changes with the row
    * that it came in, if the plan is interpreted.
    */
  def keepsTextsInRows(plan: SparkPlan): Boolean = plan.exists(_.expressions.exists(_.exists {
    case function: AggregateFunction =>
      function.aggBufferAttributes.exists(kept => Comparable.staysInRow(kept.dataType))
    case _ => false
  }))

  /** Whether it is of that form, or a part of such a plan: its leaves are below `OnePartitionExec`. */
  def isInOneTask(plan: SparkPlan): Boolean = plan.exists(_.isInstanceOf[OnePartitionExec])

  /** At most so many rows the plan has; None: it is for a job. */
  private def most(plan: SparkPlan): Option[Long] =
    if (plan.expressions.exists(_.exists(mayWait))) None
    else
      plan match {
        // What it plans anew while it runs is what shuffles have brought, and there are none.
        case adaptive: AdaptiveSparkPlanExec => most(adaptive.initialPlan)
        case reused: ReusedExchangeExec      => most(reused.child)
        case leaf: LeafExecNode              => sizeOf(leaf).filter(_ <= mostRows)
        case join: BaseJoinExec              => mostOf(join)
        case many if isMany(many)            => sum(plan).map(_ => mostRows)
        case _: WholeStageCodegenExec | _: InputAdapter | _: Exchange | _: CoalesceExec |
            _: UnionExec | _: RunsPlan | _: IndexLookupJoinExec | _: ProjectExec | _: FilterExec |
            _: BaseAggregateExec | _: SortExec | _: BaseLimitExec | _: CollectLimitExec |
            _: TakeOrderedAndProjectExec | _: WindowExecBase | _: WindowGroupLimitExec =>
          sum(plan)
        case _ => None
      }

  private def sum(plan: SparkPlan): Option[Long] = {
    val each = plan.children.map(most)
    Option.when(each.forall(_.isDefined))(each.flatten.sum)
  }

  private def mostOf(join: BaseJoinExec): Option[Long] =
    for {
      left <- most(join.left)
      right <- most(join.right)
      if isOfPairs(join) && (!hasPairs(join) || left * right <= mostPairs)
    } yield math.min(mostRows, (left + 1) * (right + 1)) // Outer joins have rows of one side.

  /** Whether it needs no broadcast. */
  private def isOfPairs(join: BaseJoinExec): Boolean = join match {
    case hashed: BroadcastHashJoinExec =>
      !hashed.isNullAwareAntiJoin && hashed.joinType != LeftSingle
    case nested: BroadcastNestedLoopJoinExec => nested.joinType.isInstanceOf[InnerLike]
    case _: ShuffledHashJoinExec | _: SortMergeJoinExec | _: CartesianProductExec => true
    case _                                                                        => false
  }

  /** Whether rows that do not join are looked at in pairs. */
  private def hasPairs(join: BaseJoinExec): Boolean = join match {
    case _: BroadcastNestedLoopJoinExec | _: CartesianProductExec => true
    case other                                                    => other.condition.isDefined
  }

  private def joined(join: BaseJoinExec): SparkPlan = join match {
    case hashed: BroadcastHashJoinExec =>
      ShuffledHashJoinExec(
        hashed.leftKeys,
        hashed.rightKeys,
        hashed.joinType,
        hashed.buildSide,
        hashed.condition,
        hashed.left,
        hashed.right
      )
    case nested: BroadcastNestedLoopJoinExec =>
      val (outer, inner) =
        if (nested.buildSide == BuildRight) (nested.left, nested.right)
        else (nested.right, nested.left)
      ProjectExec(nested.output, CartesianProductExec(outer, inner, nested.condition))
    case other => other
  }

  private def renamed(plan: SparkPlan, as: Seq[Attribute]): SparkPlan = {
    val columns = plan.output.zip(as).map { case (from, to) =>
      Alias(from, to.name)(to.exprId, to.qualifier, Some(to.metadata))
    }
    ProjectExec(columns, plan)
  }

  private def isSmall(plan: SparkPlan): Boolean =
    leaves(plan).map(sizeOf(_).getOrElse(mostRows)).sum <= mostInterpreted

  /** Whether a compiled plan would be a job, or make many rows where nobody can cancel it. */
  private def isOnlyInterpreted(plan: SparkPlan): Boolean = plan.exists {
    case adaptive: AdaptiveSparkPlanExec => isOnlyInterpreted(adaptive.initialPlan)
    case _: Exchange | _: ReusedExchangeExec | _: BaseJoinExec | _: CollectLimitExec |
        _: TakeOrderedAndProjectExec =>
      true
    case other => isMany(other)
  }

  /** Whether it makes several rows of one. */
  private def isMany(plan: SparkPlan): Boolean = plan match {
    case _: GenerateExec | _: ExpandExec | _: MergeRowsExec => true
    case _                                                  => false
  }

  private def leaves(plan: SparkPlan): Seq[SparkPlan] = plan.collectLeaves().flatMap {
    case adaptive: AdaptiveSparkPlanExec => leaves(adaptive.initialPlan)
    case reused: ReusedExchangeExec      => leaves(reused.child)
    case leaf                            => Seq(leaf)
  }

  private def sizeOf(leaf: SparkPlan): Option[Long] = leaf match {
    case local: InlineRowsExec     => Some(local.rows.size.toLong)
    case local: LocalTableScanExec => Some(local.rows.size.toLong)
    case _: OneRowRelationExec     => Some(1L)
    case range: RangeExec          => Some(range.numElements).filter(_ <= mostRows).map(_.toLong)
    case _                         => None
  }

  /** Functions of users and methods that are called by name may do anything: in a job they can be
    * cancelled.
    */
  private def mayWait(expression: Expression): Boolean = expression match {
    case _: UserDefinedExpression | _: UserDefinedGenerator | _: CallMethodViaReflection => true
    case _                                                                               => false
  }
}

/** A plan makes more rows of few than a thread of the driver is to compute. */
private[execution] object NeedsJob extends RuntimeException with NoStackTrace

/** The rows of `child` in one task. Raises `NeedsJob` there when they are more than `most`. */
private[execution] final case class BoundedRowsExec(child: SparkPlan, most: Long)
    extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  // Some operators do not know how many partitions they have, and joins ask.
  override def outputPartitioning: Partitioning = SinglePartition
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering
  override protected def doExecute(): RDD[InternalRow] = {
    val limit = most
    child.execute().mapPartitionsInternal { rows =>
      var made = 0L
      rows.map { row =>
        made += 1
        if (made > limit) throw NeedsJob
        row
      }
    }
  }
  override protected def withNewChildInternal(newChild: SparkPlan): BoundedRowsExec =
    copy(child = newChild)
}
