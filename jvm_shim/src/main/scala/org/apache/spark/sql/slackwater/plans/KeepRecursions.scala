package org.apache.spark.sql.slackwater.plans

import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule

private[plans] object KeepRecursions extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformDownWithSubqueries {
    case loop: UnionLoop => KeptRecursion(loop, loop.output)
  }
}
