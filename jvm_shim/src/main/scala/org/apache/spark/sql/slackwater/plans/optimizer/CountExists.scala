package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.Count
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.EXISTS_SUBQUERY

/** `EXISTS (q)` that refers to nothing outside is `(SELECT count(*) > 0 FROM q)`, whose value stays
  * while the number changes.
  *
  * Spark takes one row of it, and which one that is would have to be maintained.
  */
private[plans] object CountExists extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformAllExpressionsWithPruning(_.containsPattern(EXISTS_SUBQUERY)) {
      case exists: Exists if !exists.isCorrelated =>
        val rows = Alias(Count(Literal(1)).toAggregateExpression(), "rows")()
        val counted = Aggregate(Nil, Seq(rows), exists.plan)
        val some = Alias(GreaterThan(rows.toAttribute, Literal(0L)), "exists")()
        ScalarSubquery(Project(Seq(some), counted), exprId = exists.exprId)
    }
}
