package org.apache.spark.sql.slackwater.scan.logical

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._

/** The rows of a scan that meet `membership`, which looks at all columns, and `conditions`.
  *
  * It is `Filter(membership AND conditions)`, but that the optimizer concludes nothing from
  * `membership`. From a condition Spark makes one more for each set of its columns that are known by
  * other names: over twenty columns with aliases there would be a million.
  */
private[slackwater] final case class ConcernedRows(
    membership: Expression,
    conditions: Seq[Expression],
    child: LogicalPlan
) extends UnaryNode
    with PredicateHelper {
  override def output: Seq[Attribute] = child.output
  override def maxRows: Option[Long] = child.maxRows
  override protected lazy val validConstraints: ExpressionSet =
    child.constraints.union(ExpressionSet(conditions))

  /** What it is for the planner. */
  def filter: Filter = Filter((membership +: conditions).reduce(And), child)

  override protected def withNewChildInternal(newChild: LogicalPlan): ConcernedRows =
    copy(child = newChild)
}
