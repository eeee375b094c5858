package org.apache.spark.sql.slackwater.scan.logical

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.expressions.AttributeReference

/** A relation at one time of which nothing is there but indexes.
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
) extends Lookups {
  override def label: String = s"$name as of $asOf"
  override def named: Seq[(String, AttributeReference)] = output.map(a => a.name -> a)
  override def stored: Option[BoundParts] = None
}
