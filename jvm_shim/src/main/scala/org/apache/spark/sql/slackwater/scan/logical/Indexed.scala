package org.apache.spark.sql.slackwater.scan.logical

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.expressions.AttributeReference
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.slackwater.hold.{Hold, ReadStrategy}
import org.apache.spark.sql.slackwater.protocol.Coordinator

/** The rows of a relation at one time, which an index may have. */
private[slackwater] trait Indexed {

  /** Of the relation and the time, as plans show them. */
  def label: String

  /** In ms. */
  def asOf: Long

  /** The columns of the rows, with the names that the relation has for them. */
  def named: Seq[(String, AttributeReference)]

  /** The indexes on the relation, in the protocol's form. */
  protected def indexes: JsonNode

  /** What the relation has in parts; None: it is computed, or nobody was asked for them. */
  def stored: Option[BoundParts]

  /** The indexes that keep the relation. */
  def offers: Iterator[IndexOffer] = indexes.elements.asScala.map { offer =>
    val keys = offer.path("keys").elements.asScala.map(k => Option.unless(k.isNull)(k.asText)).toSeq
    IndexOffer(
      offer.get("id").asText,
      offer.get("program").asText,
      offer.get("upper").asLong,
      offer.path("name").asText,
      Option.when(keys.nonEmpty && keys.forall(_.isDefined))(keys.flatten)
    )
  }

  /** A plan for the same rows, under the attributes of `named`, that asks no index on the relation. */
  def unindexed: LogicalPlan

  /** Whether an index that is complete before `upper` (ms) is of use. */
  def canRead(upper: Long): Boolean = stored.isDefined || upper > asOf

  def isIndexed: Boolean = !indexes.isEmpty

  /** How the relation is read; None: nobody notes it. */
  def strategy: Option[ReadStrategy]

  /** Who offers them. */
  def leader: Option[Coordinator]

  /** The hold under which an index may put all rows into a file; None: to read them without it costs
    * no more.
    */
  def stashing: Option[Hold]
}

/** An index, as the coordinator offers it.
  *
  * @param id
  *   by which the coordinator knows it
  * @param program
  *   by which the leader's driver knows it; it is complete before `upper` (ms) at least
  * @param keys
  *   the columns that are its keys; None: a key is another expression
  */
private[slackwater] final case class IndexOffer(
    id: String,
    program: String,
    upper: Long,
    name: String,
    keys: Option[Seq[String]]
)
