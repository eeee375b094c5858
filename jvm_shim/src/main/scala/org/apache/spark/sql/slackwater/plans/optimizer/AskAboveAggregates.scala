package org.apache.spark.sql.slackwater.plans.optimizer

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.{AGGREGATE, SCALAR_SUBQUERY}

/** Scalar subqueries beside aggregates are asked for above them, where there is a row for each group
  * to join them with.
  */
private[plans] object AskAboveAggregates extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformUpWithPruning(_.containsAllPatterns(AGGREGATE, SCALAR_SUBQUERY)) {
      case whole: Aggregate if whole.aggregateExpressions.exists(_.exists(isBeside)) =>
        val columns = mutable.LinkedHashMap.empty[Expression, NamedExpression]
        def column(e: Expression): Attribute = columns
          .getOrElseUpdate(
            e.canonicalized,
            e match {
              case named: NamedExpression => named
              case other                  => Alias(other, "value")()
            }
          )
          .toAttribute
        whole.groupingExpressions.foreach(column)
        val results = whole.aggregateExpressions.map(_.transformDown {
          case e if columns.contains(e.canonicalized) => column(e)
          case call: AggregateExpression              => column(call)
        }.asInstanceOf[NamedExpression])
        val below = Aggregate(whole.groupingExpressions, columns.values.toSeq, whole.child)
        Project(results, below)
    }

  private def isBeside(expression: Expression): Boolean = expression match {
    case subquery: ScalarSubquery => !subquery.isCorrelated
    case _                        => false
  }
}
