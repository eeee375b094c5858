package org.apache.spark.sql.slackwater.scan.logical

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{MissingNode, ObjectNode}

import org.apache.spark.sql.catalyst.analysis.MultiInstanceRelation
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.QueryPlan
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.slackwater.hold.{Hold, ReadStrategy}
import org.apache.spark.sql.slackwater.protocol.Coordinator
import org.apache.spark.sql.types.StructType

/** Which contents a bound scan has: two scans with equal identities have the same rows.
  *
  * `bind` is 0 where the statement names the exact time, so that a cached plan serves later
  * statements with the same time; else it tells the binds apart.
  */
private[slackwater] final case class ScanIdentity(relation: String, asOf: Long, bind: Long)

/** The parts of one relation, in the protocol's form, with the schema that the rows have, under the
  * names that its columns have in files.
  */
private[slackwater] final case class BoundParts(
    json: JsonNode,
    schema: StructType,
    hold: Option[Hold]
) {

  /** How they are read. */
  def strategy: Option[ReadStrategy] = hold.map(_.strategy)

  /** The same without the indexes that keep it. */
  def unindexed: BoundParts = json match {
    case relation: ObjectNode => copy(json = relation.deepCopy().without[ObjectNode]("indexes"))
    case _                    => this
  }
}

/** A collection at one time. It becomes a plan over its parts when the optimizer begins, after
  * Spark has looked for cached data.
  */
private[slackwater] final case class BoundScan(
    name: String,
    identity: ScanIdentity,
    override val output: Seq[AttributeReference],
    parts: BoundParts
) extends LeafNode
    with MultiInstanceRelation
    with Indexed {
  override def newInstance(): LogicalPlan = copy(output = output.map(_.newInstance()))
  override def computeStats(): Statistics =
    Statistics(sizeInBytes =
      parts.json.path("files").asScala.map(_.get("size_bytes").asLong).sum + 1L
    )
  override def doCanonicalize(): LogicalPlan = BoundScan(
    "",
    identity,
    output.map(QueryPlan.normalizeExpressions(_, output)),
    BoundParts(MissingNode.getInstance, new StructType(), None)
  )
  override def simpleString(maxFields: Int): String = s"SlackwaterScan $label"
  override def label: String = s"$name as of $asOf"
  override def asOf: Long = identity.asOf
  override def named: Seq[(String, AttributeReference)] = output.map(a => a.name -> a)
  override protected def indexes: JsonNode = parts.json.path("indexes")
  override def stored: Option[BoundParts] = Some(parts)
  override def unindexed: LogicalPlan = copy(parts = parts.unindexed)
  override def strategy: Option[ReadStrategy] = parts.strategy
  override def leader: Option[Coordinator] = parts.hold.map(_.coordinator)
  override def stashing: Option[Hold] = None
}
