package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.PLAN_EXPRESSION

/** Normalises the plans inside subquery expressions; what they are ordered by has no meaning. */
private[plans] final class NormaliseSubqueries(normalise: LogicalPlan => LogicalPlan)
    extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformAllExpressionsWithPruning(_.containsPattern(PLAN_EXPRESSION)) {
      case subquery: SubqueryExpression =>
        subquery.withNewPlan(unordered(normalise(Subquery.fromExpression(subquery))))
    }

  private def unordered(plan: LogicalPlan): LogicalPlan = plan match {
    case Subquery(child, _)           => unordered(child)
    case sort: Sort                   => sort.child
    case Project(columns, sort: Sort) => Project(columns, sort.child)
    case other                        => other
  }
}
