package org.apache.spark.sql.slackwater.binding.logical

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical._

/** Queries that are bound together. */
private[slackwater] final case class Queries(override val children: Seq[LogicalPlan])
    extends LogicalPlan {
  override def output: Seq[Attribute] = Nil
  override protected def withNewChildrenInternal(
      newChildren: IndexedSeq[LogicalPlan]
  ): LogicalPlan = copy(children = newChildren)
}
