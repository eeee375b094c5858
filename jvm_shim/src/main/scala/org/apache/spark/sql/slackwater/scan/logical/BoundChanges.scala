package org.apache.spark.sql.slackwater.scan.logical

import org.apache.spark.sql.catalyst.analysis.MultiInstanceRelation
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.QueryPlan
import org.apache.spark.sql.catalyst.plans.logical._

/** What has changed in a collection after `after` (ms), until the time of `scan`.
  *
  * The collection could be read at `after` too when it was bound.
  */
private[slackwater] final case class BoundChanges(
    scan: BoundScan,
    after: Long,
    override val output: Seq[AttributeReference]
) extends LeafNode
    with MultiInstanceRelation {
  override def newInstance(): LogicalPlan = copy(output = output.map(_.newInstance()))
  override def computeStats(): Statistics = scan.computeStats()
  override def doCanonicalize(): LogicalPlan = BoundChanges(
    scan.canonicalized.asInstanceOf[BoundScan],
    after,
    output.map(QueryPlan.normalizeExpressions(_, output))
  )
  override def simpleString(maxFields: Int): String =
    s"SlackwaterChanges ${scan.name} after $after until ${scan.asOf}"
}
