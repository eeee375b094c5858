package org.apache.spark.sql.slackwater.binding.analysis

import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute
import org.apache.spark.sql.catalyst.expressions.Literal
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.slackwater.binding.logical.AsOf
import org.apache.spark.sql.slackwater.protocol.DataErrors
import org.apache.spark.sql.types._

/** Turns the expression of each `AS OF` into milliseconds. */
object ResolveAsOf extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case node: AsOf if AsOf.milliseconds(node.time).isEmpty =>
      node.time.collectFirst { case column: UnresolvedAttribute => column }.foreach { column =>
        throw DataErrors.invalidAsOf(column.sql, "a column is not a constant")
      }
      if (!node.time.resolved) node
      else node.copy(time = Literal(AsOf.evaluate(node.time), LongType))
  }
}
