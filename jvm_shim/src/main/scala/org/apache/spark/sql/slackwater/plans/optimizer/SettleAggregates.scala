package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, LogicalPlan}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.AGGREGATE
import org.apache.spark.sql.slackwater.plans.expressions.OrderedAggregate
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
        case min: Min if staysInRow(min)     => field(call, Min(whole(min.child)))
        case max: Max if staysInRow(max)     => field(call, Max(whole(max.child)))
        case max: MaxBy if staysInRow(max)   => field(call, MaxBy(whole(max.left), max.right))
        case min: MinBy if staysInRow(min)   => field(call, MinBy(whole(min.left), min.right))
        case count: Count if call.isDistinct => call.copy(Count(count.children.map(Keys.of)))
        case _                               => call
      }
    }
    .asInstanceOf[NamedExpression]

  private def staysInRow(function: AggregateFunction): Boolean =
    Comparable.staysInRow(function.dataType) || isCollated(function)

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
