package org.apache.spark.sql.slackwater.scan.logical

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.MultiInstanceRelation
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.slackwater.hold.ReadStrategy

/** Rows that a binding carried. Unlike Spark's local relation it shows in a plan where they are
  * from, and at which time.
  *
  * @param strategy
  *   told when a plan reads rows that are of no index
  */
private[slackwater] final case class InlineRows(
    label: String,
    override val output: Seq[AttributeReference],
    rows: Seq[InternalRow],
    strategy: Option[ReadStrategy] = None
) extends LeafNode
    with MultiInstanceRelation {
  override def newInstance(): LogicalPlan = copy(output = output.map(_.newInstance()))
  override def maxRows: Option[Long] = Some(rows.size.toLong)
  override def computeStats(): Statistics =
    Statistics(
      sizeInBytes = (output.map(n => BigInt(n.dataType.defaultSize)).sum + 8) * rows.size,
      rowCount = Some(rows.size)
    )
  override protected def stringArgs: Iterator[Any] = Iterator(label, output)
}
