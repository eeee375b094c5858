package org.apache.spark.sql.slackwater.plans.optimizer

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.catalyst.plans.Inner
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, Join, JoinHint, LogicalPlan, Project}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.AGGREGATE
import org.apache.spark.sql.slackwater.plans.expressions.Moments

/** Aggregates that are maintained in different ways are computed apart, each over the same rows, and
  * put together by their groups.
  *
  *   - What is accumulated stays together.
  *   - Of DISTINCT values there is one row for each, and over these the call is an ordinary one.
  *   - Extremes are those of the extremes of buckets, twice, so that for a row that goes only its
  *     bucket is read, and the extremes of few others.
  */
private[plans] object SplitAggregates extends Rule[LogicalPlan] {
  private val buckets = 1024
  private val fewBuckets = 32

  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformUpWithPruning(_.containsPattern(AGGREGATE)) {
      case whole: Aggregate
          if whole.groupingExpressions.forall(_.isInstanceOf[Attribute]) &&
            !SessionWindows.areIn(whole) =>
        split(whole).getOrElse(whole)
    }

  private sealed trait Kind
  private case object Accumulated extends Kind
  private case object Extreme extends Kind
  private final case class OfDistinct(args: Seq[Expression], filter: Option[Expression])
      extends Kind

  private def kind(call: AggregateExpression): Option[Kind] = call.aggregateFunction match {
    case _: Count | _: Sum | _: Average      => Some(accumulated(call))
    case other if Moments.of(other).nonEmpty => Some(accumulated(call))
    case _: Min | _: Max                     => Some(Extreme)
    case _: BitAndAgg | _: BitOrAgg          => Some(Extreme)
    case _: BitXorAgg if !call.isDistinct    => Some(Extreme)
    case _                                   => None
  }

  private def accumulated(call: AggregateExpression): Kind =
    if (!call.isDistinct) Accumulated
    else {
      val args = call.aggregateFunction.children.map(_.canonicalized)
      OfDistinct(args, call.filter.map(_.canonicalized))
    }

  /** The values of some calls for each group; `groups` are the columns that say which it is. */
  private final case class Part(
      plan: LogicalPlan,
      groups: Seq[Attribute],
      values: Map[Expression, Attribute]
  )

  private def split(whole: Aggregate): Option[LogicalPlan] = {
    val calls = whole.aggregateExpressions
      .flatMap(_.collect { case call: AggregateExpression => call })
      .distinctBy(_.canonicalized)
    val kinds = calls.map(kind)
    Option.when(kinds.exists(!_.contains(Accumulated)) && kinds.forall(_.nonEmpty)) {
      val byKind = mutable.LinkedHashMap.empty[Kind, Seq[AggregateExpression]]
      calls.zip(kinds.flatten).foreach { case (call, kind) =>
        byKind.updateWith(kind)(known => Some(known.toSeq.flatten :+ call))
      }
      val groups = whole.groupingExpressions.map(_.asInstanceOf[Attribute])
      together(
        whole,
        groups,
        byKind.toSeq.map { case (kind, same) =>
          part(kind, same, groups, whole.child)
        }
      )
    }
  }

  private def part(
      kind: Kind,
      calls: Seq[AggregateExpression],
      groups: Seq[Attribute],
      child: LogicalPlan
  ): Part = kind match {
    case Accumulated      => aggregated(calls.map(call => call -> call), groups, child)
    case Extreme          => extremes(calls, groups, child)
    case OfDistinct(_, _) => ofDistinct(calls, groups, child)
  }

  /** `calls`: each with what is to be called for it. */
  private def aggregated(
      calls: Seq[(AggregateExpression, AggregateExpression)],
      groups: Seq[Attribute],
      child: LogicalPlan
  ): Part = {
    val keys = groups.map(g => Alias(g, g.name)())
    val values = calls.map { case (call, made) =>
      call.canonicalized -> Alias(made.copy(resultId = NamedExpression.newExprId), "value")()
    }
    Part(
      Aggregate(groups, keys ++ values.map(_._2), child),
      keys.map(_.toAttribute),
      values.map { case (call, value) => call -> value.toAttribute }.toMap
    )
  }

  private def extremes(
      calls: Seq[AggregateExpression],
      groups: Seq[Attribute],
      child: LogicalPlan
  ): Part = {
    val read = AttributeSet(calls).toSeq.sortBy(a => child.output.indexWhere(_.exprId == a.exprId))
    Buckets.of(read, buckets) match {
      case None         => aggregated(calls.map(call => call -> call), groups, child)
      case Some(number) =>
        val bucket = Alias(number, "bucket")()
        val columns = groups ++ read.filterNot(AttributeSet(groups).contains)
        val inBuckets = aggregated(
          calls.map(call => call -> call),
          groups :+ bucket.toAttribute,
          Project(columns :+ bucket, child)
        )
        val inFew = ofExtremes(calls, inFewerBuckets(inBuckets), inBuckets.groups.size)
        ofExtremes(calls, inFew, groups.size)
    }
  }

  /** The last group of each is its bucket. */
  private def inFewerBuckets(part: Part): Part = {
    val bucket = Alias(BitwiseAnd(part.groups.last, Literal(fewBuckets - 1)), "bucket")()
    val columns = part.plan.output.filterNot(_.semanticEquals(part.groups.last))
    part.copy(
      plan = Project(columns :+ bucket, part.plan),
      groups = part.groups.init :+ bucket.toAttribute
    )
  }

  private def ofExtremes(calls: Seq[AggregateExpression], part: Part, groups: Int): Part = {
    val again = calls.map(call => call -> over(call, Seq(part.values(call.canonicalized))))
    aggregated(again, part.groups.take(groups), part.plan)
  }

  private def ofDistinct(
      calls: Seq[AggregateExpression],
      groups: Seq[Attribute],
      child: LogicalPlan
  ): Part = {
    val values = calls.head.aggregateFunction.children.map { arg =>
      val wanted = calls.head.filter.fold(arg)(If(_, arg, Literal(null, arg.dataType)))
      Alias(wanted, "value")()
    }
    val columns = groups ++ values.map(_.toAttribute)
    val rows = Aggregate(columns, columns, Project(groups ++ values, child))
    val again = calls.map(call => call -> over(call, values.map(_.toAttribute)))
    aggregated(again, groups, rows)
  }

  /** The call of other rows, which have in `values` what it is called with. */
  private def over(call: AggregateExpression, values: Seq[Attribute]): AggregateExpression =
    call.copy(
      aggregateFunction =
        call.aggregateFunction.withNewChildren(values).asInstanceOf[AggregateFunction],
      isDistinct = false,
      filter = None
    )

  private def together(
      whole: Aggregate,
      groups: Seq[Attribute],
      parts: Seq[Part]
  ): LogicalPlan = {
    val joined = parts.tail.foldLeft(parts.head.plan) { (left, part) =>
      val same = parts.head.groups.zip(part.groups).map { case (a, b) => EqualNullSafe(a, b) }
      Join(left, part.plan, Inner, same.reduceOption[Expression](And), JoinHint.NONE)
    }
    val values = parts.flatMap(_.values).toMap
    val keys = AttributeMap(groups.zip(parts.head.groups))
    val results = whole.aggregateExpressions.map {
      case key: Attribute => Alias(keys(key), key.name)(key.exprId, key.qualifier)
      case result         =>
        result
          .transformDown {
            case call: AggregateExpression            => values(call.canonicalized)
            case key: Attribute if keys.contains(key) => keys(key)
          }
          .asInstanceOf[NamedExpression]
    }
    Project(results, joined)
  }
}
