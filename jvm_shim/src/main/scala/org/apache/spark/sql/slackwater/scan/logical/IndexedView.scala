package org.apache.spark.sql.slackwater.scan.logical

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.slackwater.hold.{Hold, ReadStrategy}
import org.apache.spark.sql.slackwater.protocol.Coordinator

/** A plain view that has an index: the rows of its query, bound to one time.
  *
  * Filters stop above it until an index was asked for the rows, or it is replaced by its query. It
  * counts as its query wherever plans are compared.
  *
  * @param whole
  *   the query as it was bound; rules change `child`
  * @param columns
  *   the names of the view's columns, which those of the query may not have
  */
private[slackwater] final case class IndexedView(
    child: LogicalPlan,
    whole: LogicalPlan,
    name: String,
    asOf: Long,
    columns: Seq[String],
    indexes: JsonNode,
    leader: Option[Coordinator],
    hold: Option[Hold]
) extends UnaryNode
    with Indexed {
  override def output: Seq[Attribute] = child.output
  override def maxRows: Option[Long] = child.maxRows
  override def doCanonicalize(): LogicalPlan = child.canonicalized

  /** An index has all columns of the view: none of them is left out below. */
  @transient override lazy val references: AttributeSet = child.outputSet

  override def named: Seq[(String, AttributeReference)] =
    columns.zip(output).collect { case (column, a: AttributeReference) => column -> a }
  override def offers: Iterator[IndexOffer] =
    if (named.size == output.size) super.offers else Iterator.empty
  override def stored: Option[BoundParts] = None
  override def strategy: Option[ReadStrategy] = hold.map(_.strategy)

  /** A query that takes row by row is done where the parts are read, which is as quick. */
  override def stashing: Option[Hold] = hold.filter(_ =>
    whole.exists {
      case _: Project | _: Filter | _: Union | _: SubqueryAlias | _: View | _: LeafNode => false
      case _: IndexedView                                                               => false
      case _                                                                            => true
    }
  )
  override def unindexed: LogicalPlan = {
    val columns = output.zip(whole.output).map { case (now, before) =>
      if (now.exprId == before.exprId) before
      else Alias(before, now.name)(now.exprId, now.qualifier, Some(now.metadata))
    }
    Project(columns, whole)
  }

  override def label: String = s"$name as of $asOf"
  override def simpleString(maxFields: Int): String = s"SlackwaterView $label"

  override protected def withNewChildInternal(newChild: LogicalPlan): IndexedView =
    copy(child = newChild)
}
