package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.{LIMIT, OFFSET}

/** LIMIT stands right above the ORDER BY that it is about.
  *
  * Spark looks for it there when it takes a correlated LIMIT out of a subquery, and a column that is
  * ordered by and not selected has put a projection in between.
  */
private[plans] object LimitSorted extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformUpWithPruning(
    _.containsAnyPattern(LIMIT, OFFSET)
  ) {
    case limit: UnaryNode if isLimit(limit) => belowProjections(limit, limit.child)
  }

  private def belowProjections(limit: UnaryNode, child: LogicalPlan): LogicalPlan = child match {
    case project: Project if project.deterministic && isSorted(project.child) =>
      project.copy(child = belowProjections(limit, project.child))
    case _ => limit.withNewChildren(Seq(child))
  }

  private def isLimit(plan: LogicalPlan): Boolean = plan match {
    case _: GlobalLimit | _: LocalLimit | _: Offset => true
    case _                                          => false
  }

  private def isSorted(plan: LogicalPlan): Boolean = plan match {
    case sort: Sort                         => sort.global
    case project: Project                   => isSorted(project.child)
    case limit: UnaryNode if isLimit(limit) => isSorted(limit.child)
    case _                                  => false
  }
}
