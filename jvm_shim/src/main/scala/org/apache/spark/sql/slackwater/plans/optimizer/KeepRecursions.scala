package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.slackwater.plans.logical.KeptRecursion

private[plans] object KeepRecursions extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformDownWithSubqueries {
    case loop: UnionLoop => KeptRecursion(loop, loop.output)
  }
}
