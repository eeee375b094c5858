package org.apache.spark.sql.slackwater.scan.logical

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical._

/** The rows that a plan over updates gives.
  *
  * Below it are rows that were retracted, of which no statement may know. So a condition passes only
  * if it cannot fail.
  */
private[slackwater] final case class ConsolidatedRows(child: LogicalPlan) extends UnaryNode {
  override def output: Seq[Attribute] = child.output
  override def maxRows: Option[Long] = child.maxRows
  override protected def withNewChildInternal(newChild: LogicalPlan): ConsolidatedRows =
    copy(child = newChild)
}
