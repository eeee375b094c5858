package org.apache.spark.sql.slackwater.plans

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers
import org.apache.spark.sql.catalyst.plans.Inner
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, Join, JoinHint, LogicalPlan, Project}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.AGGREGATE
import org.apache.spark.sql.slackwater.values.{Comparable, Keys, Nested}
import org.apache.spark.sql.types.ArrayType

/** Aggregates have one value for the same rows, in whichever order these come.
  *
  *   - The least and the greatest of numbers that are equal is one of them: 0.0, not -0.0. Of texts
  *     that are equal it is the least and the greatest by their bytes.
  *   - Of the values at the greatest, `max_by` gives the greatest; `min_by` the least at the least. A
  *     list of several is in this order too.
  *   - Of several values that are there as often, `mode` gives the least.
  *   - What is collected is sorted, before the query sorts it as it wants.
  *   - Texts with a collation that an aggregate keeps are kept in structs: Spark's interpreted
  *     aggregates copy a struct, and such a text they do not.
  *   - DISTINCT texts are counted by what their collation has equal.
  *   - What else depends on the order gets the rows in one (`OrderedAggregate`), by what all calls
  *     read: it takes the same rows as its neighbours do.
  */
private[plans] object SettleAggregates extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan
    .transformAllExpressions {
      case min: Min                                                    => min.copy(same(min.child))
      case max: Max                                                    => max.copy(same(max.child))
      case MaxBy(value, by) if RowOrdering.isOrderable(value.dataType) =>
        MaxBy(same(value), withValue(by, value))
      case MinBy(value, by) if RowOrdering.isOrderable(value.dataType) =>
        MinBy(same(value), withValue(by, value))
      case mode: Mode if mode.reverseOpt.isEmpty && RowOrdering.isOrderable(mode.dataType) =>
        mode.copy(child = same(mode.child), reverseOpt = Some(true))
      case percentile: Percentile     => percentile.copy(child = same(percentile.child))
      case percentile: PercentileDisc => percentile.copy(child = same(percentile.child))
      case first: MaxMinByK if RowOrdering.isOrderable(first.valueExpr.dataType) =>
        first.copy(
          valueExpr = same(first.valueExpr),
          orderingExpr = withValue(first.orderingExpr, first.valueExpr)
        )
    }
    .transformUpWithPruning(_.containsPattern(AGGREGATE)) { case aggregate: Aggregate =>
      val order = read(aggregate)
      aggregate.copy(aggregateExpressions =
        aggregate.aggregateExpressions.map(e => kept(sorted(inOrder(e, order))))
      )
    }

  /** The columns that calls read, beside those which all rows of a group have alike. */
  private def read(aggregate: Aggregate): Seq[Attribute] = {
    val alike = AttributeSet(aggregate.groupingExpressions.collect { case a: Attribute => a })
    val calls = AttributeSet(aggregate.aggregateExpressions.flatMap(_.collect {
      case call: AggregateExpression => call
    }))
    aggregate.child.output.filter(a => calls.contains(a) && !alike.contains(a))
  }

  private def inOrder(result: NamedExpression, order: Seq[Attribute]): NamedExpression = result
    .transformUp {
      case call: AggregateExpression if !Settled.inGroups(call.aggregateFunction) =>
        val by = if (call.isDistinct) Nil else order
        val function = OrderedAggregate.of(call.aggregateFunction, by, call.isDistinct)
        call.copy(aggregateFunction = function, isDistinct = false)
    }
    .asInstanceOf[NamedExpression]

  private def kept(result: NamedExpression): NamedExpression = result
    .transformUp { case call: AggregateExpression =>
      call.aggregateFunction match {
        case min: Min if isCollated(min)     => field(call, Min(whole(min.child)))
        case max: Max if isCollated(max)     => field(call, Max(whole(max.child)))
        case max: MaxBy if isCollated(max)   => field(call, MaxBy(whole(max.left), max.right))
        case min: MinBy if isCollated(min)   => field(call, MinBy(whole(min.left), min.right))
        case count: Count if call.isDistinct => call.copy(Count(count.children.map(Keys.of)))
        case _                               => call
      }
    }
    .asInstanceOf[NamedExpression]

  private def isCollated(function: AggregateFunction): Boolean =
    function.dataType.existsRecursively(Comparable.isCollated)

  private def field(call: AggregateExpression, function: AggregateFunction): Expression =
    GetStructField(call.copy(aggregateFunction = function), 0)

  /** The value and, where its collation has others for equal, its bytes. */
  private def whole(value: Expression): Expression =
    Nested.unlessNull(value)(
      CreateNamedStruct(Seq(Literal("value"), value, Literal("bytes"), Keys.bytes(value)))
    )

  private def same(value: Expression): Expression = NormalizeFloatingNumbers.normalize(value)

  private def withValue(by: Expression, value: Expression): Expression = {
    val both = Seq(Literal("by"), same(by), Literal("value"), same(value))
    val bytes = Option
      .when(value.dataType.existsRecursively(Comparable.isCollated))(Keys.bytes(value))
      .toSeq
      .flatMap(Seq(Literal("bytes"), _))
    Nested.unlessNull(by)(CreateNamedStruct(both ++ bytes))
  }

  private def sorted(result: NamedExpression): NamedExpression = result
    .transformUp { case call: AggregateExpression =>
      call.aggregateFunction match {
        case list: CollectList if isCollated(list) => sortedTexts(call, list)
        case _: CollectList | _: CollectSet        => sortedValues(call)
        case _                                     => call
      }
    }
    .asInstanceOf[NamedExpression]

  private def sortedValues(call: AggregateExpression): Expression = call.dataType match {
    case ArrayType(element, _) if RowOrdering.isOrderable(element) =>
      val values = call.aggregateFunction.children.map(same)
      val function = call.aggregateFunction.withNewChildren(values)
      val settled = call.copy(aggregateFunction = function.asInstanceOf[AggregateFunction])
      SortArray(settled, Literal.TrueLiteral)
    case _ => call
  }

  private def sortedTexts(call: AggregateExpression, list: CollectList): Expression = {
    val texts = call.copy(aggregateFunction = list.copy(child = whole(list.child)))
    val hasNulls = list.dataType.asInstanceOf[ArrayType].containsNull
    Nested.elements(SortArray(texts, Literal.TrueLiteral)) { element =>
      val text = GetStructField(element, 0)
      if (hasNulls) text else KnownNotNull(text)
    }
  }
}

/** Which aggregates have one value for the same rows, in whichever order these come. */
private[plans] object Settled {

  /** In a group, once `SettleAggregates` has done its part. */
  def inGroups(function: AggregateFunction): Boolean = function match {
    case list: CollectList => isSortable(list)
    case set: CollectSet   => isSortable(set)
    case other             => inWindows(other)
  }

  def inWindows(function: AggregateFunction): Boolean = function match {
    case _: Count | _: Sum | _: Average | _: Min | _: Max  => true
    case _: BitAndAgg | _: BitOrAgg | _: BitXorAgg         => true
    case _: Percentile | _: PercentileDisc | _: PivotFirst => true
    case _: HyperLogLogPlusPlus | _: CountMinSketchAgg     => true
    case by: MaxBy       => RowOrdering.isOrderable(by.left.dataType)
    case by: MinBy       => RowOrdering.isOrderable(by.left.dataType)
    case some: MaxMinByK => RowOrdering.isOrderable(some.valueExpr.dataType)
    case mode: Mode      =>
      RowOrdering.isOrderable(mode.dataType) && HandleRegistry.keyIssues(mode.dataType).isEmpty
    // It is called by an operator of its own.
    case _: PythonFuncExpression => true
    case other                   => Moments.of(other).nonEmpty
  }

  private def isSortable(list: AggregateFunction): Boolean = list.dataType match {
    case ArrayType(element, _) => RowOrdering.isOrderable(element)
    case _                     => false
  }
}

/** `session_window` in GROUP BY: Spark merges such groups where they overlap, and knows them by what
  * is noted at their column.
  */
private[plans] object SessionWindows {
  def areIn(aggregate: Aggregate): Boolean = aggregate.groupingExpressions.exists(isOne)

  def isOne(group: Expression): Boolean = group match {
    case named: NamedExpression => named.metadata.contains(SessionWindow.marker)
    case _                      => false
  }
}

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
