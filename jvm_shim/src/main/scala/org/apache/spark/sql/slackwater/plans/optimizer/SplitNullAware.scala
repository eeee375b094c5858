package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.Count
import org.apache.spark.sql.catalyst.plans.{Inner, LeftAnti}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.JOIN

/** `NOT IN` over columns that may be NULL, as an anti join by the values and two questions about the
  * subquery alone: whether it has a row, and whether it has NULL.
  *
  * As one join it would have no equal columns, and each change of the subquery would be compared
  * with the whole other side.
  */
private[plans] object SplitNullAware extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformUpWithPruning(_.containsPattern(JOIN)) {
      case join @ Join(left, right, LeftAnti, Some(Or(equal: EqualTo, IsNull(same))), _)
          if equal == same =>
        sides(equal, left, right).fold[LogicalPlan](join) { case (value, found) =>
          split(left, right, value, found)
        }
    }

  private def sides(
      equal: EqualTo,
      left: LogicalPlan,
      right: LogicalPlan
  ): Option[(Expression, Expression)] = {
    def isOf(side: LogicalPlan, e: Expression): Boolean = e.references.subsetOf(side.outputSet)
    if (isOf(left, equal.left) && isOf(right, equal.right)) Some(equal.left -> equal.right)
    else if (isOf(left, equal.right) && isOf(right, equal.left)) Some(equal.right -> equal.left)
    else None
  }

  private def split(
      left: LogicalPlan,
      right: LogicalPlan,
      value: Expression,
      found: Expression
  ): LogicalPlan = {
    val rows = Alias(Count(Literal(1)).toAggregateExpression(), "rows")()
    val values = Alias(Count(found).toAggregateExpression(), "values")()
    val counted = Aggregate(Nil, Seq(rows, values), right)
    val isEmpty = Alias(EqualTo(rows.toAttribute, Literal(0L)), "is_empty")()
    val hasNull = Alias(GreaterThan(rows.toAttribute, values.toAttribute), "has_null")()
    val asked = Project(Seq(isEmpty, hasNull), counted)
    val others = Join(left, right, LeftAnti, Some(EqualTo(value, found)), JoinHint.NONE)
    val kept =
      Or(isEmpty.toAttribute, And(IsNotNull(value), Not(hasNull.toAttribute)))
    Project(left.output, Join(others, asked, Inner, Some(kept), JoinHint.NONE))
  }
}
