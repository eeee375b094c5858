package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.{Count, MinBy}
import org.apache.spark.sql.catalyst.plans.{Inner, LeftOuter, LeftSingle}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.JOIN
import org.apache.spark.sql.slackwater.plans.logical.{FreshExprIds, JoinCondition, JoinKey}

/** A join that must find one row at most is an outer join with groups of the rows that it finds:
  * their least values, and Spark's error where there are several.
  *
  * The rows are grouped by what they are found by: where that is not a column of theirs, but a
  * condition on both sides, by the values of the left side that the condition asks for. What has no
  * least value is left as it is.
  */
private[plans] object CountSingleRows extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformUpWithPruning(
    _.containsPattern(JOIN)
  ) { case join @ Join(left, right, LeftSingle, Some(condition), _) =>
    val asked = left.output.filter(condition.references.contains)
    val ordered = (right.output ++ asked).forall(c => RowOrdering.isOrderable(c.dataType))
    if (asked.isEmpty || !ordered) join else outer(join, condition, asked)
  }

  private def outer(join: Join, condition: Expression, asked: Seq[Attribute]): LogicalPlan = {
    val parts = JoinCondition.of(join)
    val columns = parts.keys.collect { case JoinKey(_, column: Attribute, _) => column }
    val isByColumns = parts.residual.isEmpty && columns.size == parts.keys.size
    if (isByColumns) byColumns(join, condition, columns.distinct)
    else byAsked(join, condition, asked)
  }

  private def byColumns(join: Join, condition: Expression, columns: Seq[Attribute]): LogicalPlan = {
    val groups = new Groups(join.right, columns, join.right.output)
    val keys = AttributeMap(columns.zip(groups.keys))
    val same = condition.transform { case a: Attribute => keys.getOrElse(a, a) }
    groups.beside(join.left, same)
  }

  private def byAsked(join: Join, condition: Expression, asked: Seq[Attribute]): LogicalPlan = {
    val askers = FreshExprIds(Aggregate(asked, asked, join.left))
    val values = AttributeMap(asked.zip(askers.output))
    val found = condition.transform { case a: Attribute => values.getOrElse(a, a) }
    val pairs = Join(askers, join.right, Inner, Some(found), JoinHint.NONE)
    val groups = new Groups(pairs, askers.output, join.right.output)
    val same = asked.zip(groups.keys).map { case (a, key) => EqualNullSafe(a, key) }
    groups.beside(join.left, same.reduce[Expression](And))
  }

  /** The rows of a plan by `columns`: how many, and the least of each of `values`. */
  private final class Groups(rows: LogicalPlan, columns: Seq[Attribute], values: Seq[Attribute]) {
    private val count = Alias(Count(Literal(1)).toAggregateExpression(), "rows")()
    private val by = columns.map(c => Alias(c, c.name)())
    private val least = values.map { c =>
      // `Min` would be maintained by buckets, of which a single row needs none.
      c -> Alias(MinBy(c, Literal(1)).toAggregateExpression(), c.name)()
    }

    val keys: Seq[Attribute] = by.map(_.toAttribute)

    def beside(left: LogicalPlan, same: Expression): LogicalPlan = {
      val groups = Aggregate(columns, by ++ (count +: least.map(_._2)), rows)
      val joined = Join(left, groups, LeftOuter, Some(same), JoinHint.NONE)
      val several = GreaterThan(count.toAttribute, Literal(1L))
      val single = least.map { case (column, value) =>
        val only = If(several, OnlyRow.failure(column.dataType), value.toAttribute)
        Alias(only, column.name)(exprId = column.exprId, qualifier = column.qualifier)
      }
      Project(left.output ++ single, joined)
    }
  }
}
