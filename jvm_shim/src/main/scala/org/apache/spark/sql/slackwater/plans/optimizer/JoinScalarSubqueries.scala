package org.apache.spark.sql.slackwater.plans.optimizer

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.{Inner, LeftSingle}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.SCALAR_SUBQUERY
import org.apache.spark.sql.slackwater.plans.logical.FreshExprIds

/** A scalar subquery that refers to nothing outside becomes a join with its only row.
  *
  * Where it is not sure to have one row, it is made to: NULL for no row, a failure for several.
  * LeftSingle, which does the same, is for what has no least value.
  */
private[plans] object JoinScalarSubqueries extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformUpWithPruning(_.containsPattern(SCALAR_SUBQUERY)) {
      case node if node.children.nonEmpty && node.expressions.exists(_.exists(isAlone)) =>
        val found = new Found
        val replaced = node.transformExpressions {
          case s: ScalarSubquery if isAlone(s) => found(s)
        }
        val joined = found.plans.foldLeft(replaced.children.head)(join)
        val whole = replaced.withNewChildren(joined +: replaced.children.tail)
        if (whole.output.map(_.exprId) == node.output.map(_.exprId)) whole
        else Project(node.output, whole)
    }

  private def isAlone(expression: Expression): Boolean = expression match {
    case subquery: ScalarSubquery => !subquery.isCorrelated
    case _                        => false
  }

  /** The subqueries of a node: those with the same plan are one.
    *
    * Pushing a filter down may have copied one into another node, with its ids.
    */
  private final class Found {
    private val values = mutable.LinkedHashMap.empty[LogicalPlan, LogicalPlan]
    def apply(subquery: ScalarSubquery): Attribute = {
      val plan =
        values.getOrElseUpdate(subquery.plan.canonicalized, OnlyRow(FreshExprIds(subquery.plan)))
      if (hasOneRow(plan)) plan.output.head else plan.output.head.withNullability(true)
    }
    def plans: Iterable[LogicalPlan] = values.values
  }

  private def join(left: LogicalPlan, right: LogicalPlan): LogicalPlan =
    Join(left, right, if (hasOneRow(right)) Inner else LeftSingle, None, JoinHint.NONE)

  private[plans] def hasOneRow(plan: LogicalPlan): Boolean = plan match {
    case aggregate: Aggregate => aggregate.groupingExpressions.isEmpty
    case project: Project     => hasOneRow(project.child)
    case _: OneRowRelation    => true
    case _                    => false
  }
}
