package org.apache.spark.sql.slackwater.scan.logical

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.expressions.AttributeReference
import org.apache.spark.sql.catalyst.plans.logical.{LeafNode, LogicalPlan, Statistics}
import org.apache.spark.sql.slackwater.hold.{Hold, ReadStrategy}
import org.apache.spark.sql.slackwater.protocol.Coordinator

/** A relation at one time of which nothing is there but indexes of this driver. No plan that runs has
  * one: the rows of an index take its place, or the query is bound.
  *
  * @param name
  *   of the relation, as messages have it
  * @param asOf
  *   in ms
  */
private[slackwater] final case class UnboundScan(
    name: String,
    asOf: Long,
    output: Seq[AttributeReference],
    indexes: JsonNode
) extends LeafNode
    with Indexed {
  override def computeStats(): Statistics = Statistics(sizeInBytes = conf.defaultSizeInBytes)
  override def label: String = s"$name as of $asOf"
  override def named: Seq[(String, AttributeReference)] = output.map(a => a.name -> a)
  override def stored: Option[BoundParts] = None
  override def strategy: Option[ReadStrategy] = None
  override def unindexed: LogicalPlan = this
  override def leader: Option[Coordinator] = None
  override def stashing: Option[Hold] = None

  /** How far it is, the index says when it is asked. */
  override def canRead(upper: Long): Boolean = true
}
