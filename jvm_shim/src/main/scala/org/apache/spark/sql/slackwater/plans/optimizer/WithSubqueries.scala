package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.PLAN_EXPRESSION

/** Applies rules to a plan, and to the plans inside its subquery expressions. */
private[plans] final class WithSubqueries(rules: Rule[LogicalPlan]*) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    rules
      .foldLeft(plan)((done, rule) => rule(done))
      .transformAllExpressionsWithPruning(_.containsPattern(PLAN_EXPRESSION)) {
        case subquery: SubqueryExpression => subquery.withNewPlan(apply(subquery.plan))
      }
}
