package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.{IN_SUBQUERY, JOIN}

/** `NOT IN` in the condition of a join is `NOT EXISTS` of what is equal, or may be.
  *
  * Spark asks there whether an equal value exists, and does not see that NULL may be one.
  */
private[plans] object NullAwareInJoins extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformWithPruning(_.containsAllPatterns(JOIN, IN_SUBQUERY)) { case join: Join =>
      join.copy(condition = join.condition.map(_.transformDown {
        case Not(InSubquery(values, query: ListQuery)) if values.exists(_.references.nonEmpty) =>
          Not(possible(values, query))
      }))
    }

  private def possible(values: Seq[Expression], query: ListQuery): Exists = {
    val columns = query.plan.output.map(column => Alias(column, column.name)())
    val renamed = AttributeMap(query.plan.output.zip(columns.map(_.toAttribute)))
    val same = values.zip(columns).map { case (value, column) =>
      EqualTo(value, column.toAttribute)
    }
    val correlated = query.joinCond.map(_.transform { case a: Attribute =>
      renamed.getOrElse(a, a)
    })
    Exists(
      Project(columns, query.plan),
      outerAttrs = values.flatMap(_.references) ++ query.outerAttrs,
      exprId = query.exprId,
      joinCond = same.map(equal => Or(equal, IsNull(equal))) ++ correlated
    )
  }
}
