package org.apache.spark.sql.slackwater.plans.optimizer

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.slackwater.plans.logical.{FreshExprIds, KeptRecursion}

/** Recursions in their places, each copy with ids of its own; they leave no rows open either. */
private[plans] object RestoreRecursions extends Rule[LogicalPlan] {
  private val settle = Seq(SettleAggregates, NumberLimited, TotalOrdering)

  override def apply(plan: LogicalPlan): LogicalPlan = {
    val seen = mutable.HashSet.empty[Seq[Attribute]]
    plan.transformUpWithSubqueries {
      case KeptRecursion(loop, output) if loop.output == output && seen.add(output) => settled(loop)
      case KeptRecursion(loop, output)                                              =>
        val copy = FreshExprIds(settled(loop))
        val columns = copy.output.zip(output).map { case (value, column) =>
          Alias(value, column.name)(column.exprId, column.qualifier)
        }
        Project(columns, copy)
    }
  }

  private def settled(loop: UnionLoop): LogicalPlan =
    loop.withNewChildren(loop.children.map(child => settle.foldLeft(child)((p, rule) => rule(p))))
}
