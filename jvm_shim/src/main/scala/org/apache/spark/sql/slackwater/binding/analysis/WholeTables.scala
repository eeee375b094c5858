package org.apache.spark.sql.slackwater.binding.analysis

import org.apache.spark.sql.catalyst.expressions.Literal.TrueLiteral
import org.apache.spark.sql.catalyst.plans.logical.{
  LogicalPlan,
  OverwriteByExpression,
  OverwritePartitionsDynamic
}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.slackwater.binding.Ours

/** Replacing the partitions for which there are rows: a table without partitions is one of them.
  *
  * So do INSERT OVERWRITE with `spark.sql.sources.partitionOverwriteMode` set to `dynamic`, and
  * `overwritePartitions()`.
  */
private[slackwater] object WholeTables extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case write: OverwritePartitionsDynamic if write.resolved && Ours.is(write.table) =>
      OverwriteByExpression.byPosition(write.table, write.query, TrueLiteral, write.writeOptions)
  }
}
