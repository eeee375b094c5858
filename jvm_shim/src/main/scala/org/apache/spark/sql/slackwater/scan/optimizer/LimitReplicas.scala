package org.apache.spark.sql.slackwater.scan.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.GENERATE
import org.apache.spark.sql.slackwater.scan.ReplicateByMultiplicity
import org.apache.spark.sql.slackwater.scan.logical.ConsolidatedRows

/** Where only the first n rows are kept, of all or of each partition, no row is needed more than n
  * times: a row that is there very often is neither sorted nor sent that often.
  */
private[slackwater] object LimitReplicas extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformWithPruning(_.containsPattern(GENERATE)) {
      case limit @ LocalLimit(IntegerLiteral(count), rows) =>
        limit.copy(child = bounded(rows, count))
      case limit @ GlobalLimit(IntegerLiteral(count), rows) =>
        limit.copy(child = bounded(rows, count))
      case filter @ FirstRows(count, window) =>
        filter.copy(child = window.copy(child = bounded(window.child, count)))
    }

  private def bounded(rows: LogicalPlan, count: Int): LogicalPlan = rows match {
    case project @ Project(columns, child) if columns.forall(_.deterministic) =>
      project.copy(child = bounded(child, count))
    case filter @ Filter(condition, child) if condition.deterministic =>
      filter.copy(child = bounded(child, count))
    case rows: ConsolidatedRows => rows.copy(child = bounded(rows.child, count))
    case sort: Sort             => sort.copy(child = bounded(sort.child, count))
    case limit: LocalLimit      => limit.copy(child = bounded(limit.child, count))
    case union: Union           => union.copy(children = union.children.map(bounded(_, count)))
    case generate @ Generate(replicas: ReplicateByMultiplicity, _, _, _, _, _)
        if replicas.atMost > count =>
      generate.copy(generator = replicas.copy(atMost = math.max(0, count)))
    case other => other
  }
}
