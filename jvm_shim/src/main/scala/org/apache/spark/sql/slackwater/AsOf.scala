package org.apache.spark.sql.slackwater

import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnaryNode}

/** `child AS OF [AT LEAST] time`: the time at which every collection below is read. */
case class AsOf(child: LogicalPlan, time: Expression, atLeast: Boolean) extends UnaryNode {
  override def output: Seq[Attribute] = child.output
  override protected def withNewChildInternal(newChild: LogicalPlan): LogicalPlan =
    copy(child = newChild)
}
