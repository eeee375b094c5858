package org.apache.spark.sql.slackwater.scan.logical

import org.apache.spark.sql.catalyst.analysis.MultiInstanceRelation
import org.apache.spark.sql.catalyst.expressions.AttributeReference
import org.apache.spark.sql.catalyst.plans.logical.{LeafNode, LogicalPlan, Statistics}

/** Rows that are handed in anew each time a compiled plan runs. Their plan is made once. */
private[slackwater] final case class SlotRows(
    name: String,
    override val output: Seq[AttributeReference]
) extends LeafNode
    with MultiInstanceRelation {
  override def newInstance(): LogicalPlan = copy(output = output.map(_.newInstance()))
  override def computeStats(): Statistics = Statistics(sizeInBytes = 1024)
}
