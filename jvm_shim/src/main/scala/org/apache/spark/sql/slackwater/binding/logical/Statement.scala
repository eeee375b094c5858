package org.apache.spark.sql.slackwater.binding.logical

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, OrderPreservingUnaryNode}

/** The root of a bound query. Whatever looks for equal plans sees the query alone. */
private[slackwater] final case class Statement(child: LogicalPlan, binding: StatementBinding)
    extends OrderPreservingUnaryNode {
  override def output: Seq[Attribute] = child.output
  override def maxRows: Option[Long] = child.maxRows
  override def maxRowsPerPartition: Option[Long] = child.maxRowsPerPartition
  override def doCanonicalize(): LogicalPlan = child.canonicalized
  override def nodeName: String = Statement.Name
  override protected def stringArgs: Iterator[Any] = Iterator.empty
  override protected def withNewChildInternal(newChild: LogicalPlan): Statement =
    copy(child = newChild)
}

private[slackwater] object Statement {
  val Name = "SlackwaterStatement"
}
