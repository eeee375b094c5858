package org.apache.spark.sql.slackwater.plans.logical

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical._

/** A recursion as it was analyzed: what it asks of itself in a subquery may not become a join.
  *
  * @param output
  *   of the reader: another one than that of `loop` where the plan was copied
  */
private[plans] final case class KeptRecursion(
    loop: UnionLoop,
    override val output: Seq[Attribute]
) extends LeafNode {
  override def computeStats(): Statistics = Statistics(sizeInBytes = conf.defaultSizeInBytes)
}
