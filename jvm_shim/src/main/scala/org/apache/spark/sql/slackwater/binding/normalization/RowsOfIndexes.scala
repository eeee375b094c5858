package org.apache.spark.sql.slackwater.binding.normalization

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.optimizer.PushDownPredicates
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.slackwater.binding.Ours
import org.apache.spark.sql.slackwater.catalog.IdentifiedTable
import org.apache.spark.sql.slackwater.protocol.DataErrors
import org.apache.spark.sql.slackwater.scan.{IndexJoin, IndexScan}
import org.apache.spark.sql.slackwater.scan.logical.{InlineRows, UnboundScan}
import org.apache.spark.sql.slackwater.scan.optimizer.FoldInlineRows
import org.apache.spark.sql.slackwater.shims.V2Relation
import org.apache.spark.sql.types.{DatetimeType, StringType}

/** Takes the rows of a query out of indexes of this driver, before the optimizer runs.
  *
  * @param asOf
  *   the time of the rows, in ms
  * @param offers
  *   the indexes on each relation, by its id, in the protocol's form
  */
private final class RowsOfIndexes(
    session: SparkSession,
    asOf: Long,
    offers: Map[String, JsonNode]
) extends PredicateHelper {

  /** The plan with rows in the place of its `count` relations; None: an index does not have the rows of
    * one, which it has for a filter right above the relation, and for a join with rows that are there.
    */
  def of(plan: LogicalPlan, count: Int): Option[LogicalPlan] = {
    val joins = plan.exists(_.isInstanceOf[Join])
    var relations = 0
    val unbound = EliminateSubqueryAliases(plan).transformUp {
      case relation @ V2Relation(Ours(table)) if !table.isInstanceOf[IdentifiedTable] =>
        offers.get(table.id).fold[LogicalPlan](relation) { indexes =>
          relations += 1
          val output = relation.asInstanceOf[DataSourceV2Relation].output
          UnboundScan(DataErrors.nameOf(table.description), asOf, output, indexes)
        }
    }
    if (relations != count) None
    else {
      // A condition above a join may be one on a side of it.
      val read = (if (joins) PushDownPredicates(unbound) else unbound).transformUp {
        case filter @ Filter(condition, scan: UnboundScan) => filtered(filter, condition, scan)
        case join: Join                                    => joined(join).getOrElse(join)
      }
      Option.unless(read.exists(_.isInstanceOf[UnboundScan]))(read)
    }
  }

  private def filtered(filter: Filter, condition: Expression, scan: UnboundScan): LogicalPlan = {
    val fixed = splitConjunctivePredicates(condition).filter(isFixed)
    val rows = fixed.reduceOption(And).flatMap(IndexScan.of(session, _, scan))
    rows.fold(filter)(found => filter.copy(child = found))
  }

  /** The rows of a join, one side of which is made of constants; None: no index has those of the other
    * side, or they are many.
    */
  private def joined(join: Join): Option[InlineRows] =
    if (!join.collectLeaves().forall(isHere) || join.exists(isOpen)) None
    else
      for {
        lookup <- IndexJoin.of(session, join)
        probe <- computed(lookup.probe)
        rows <- IndexScan.attempt(IndexJoin.rows(session, lookup, probe.output, probe.rows))
        found <- IndexScan.attempt(Some(rows.take(IndexScan.mostRows + 1).toSeq))
        if found.sizeIs <= IndexScan.mostRows
      } yield InlineRows(lookup.simpleString(0), lookup.output.map(reference), found)

  /** Whether the optimizer has more to say of the node: what it is worth now, or how to join it. */
  private def isOpen(node: LogicalPlan): Boolean =
    node.isInstanceOf[ResolvedHint] || !node.expressions.forall(isFixed)

  /** Other relations are not asked yet how large they are. */
  private def isHere(leaf: LogicalPlan): Boolean = leaf match {
    case _: UnboundScan | _: InlineRows | _: LocalRelation | _: Range | _: OneRowRelation => true
    case _                                                                                => false
  }

  private def computed(probe: LogicalPlan): Option[InlineRows] = {
    val local = probe.transform {
      case LocalRelation(output, rows, false, _) =>
        InlineRows("", output.map(reference), rows)
      case OneRowRelation() => InlineRows("", Nil, Seq(InternalRow.empty))
    }
    Some(FoldInlineRows(local)).collect { case rows: InlineRows => rows }
  }

  private def reference(attribute: Attribute): AttributeReference =
    attribute.asInstanceOf[AttributeReference]

  /** Whether the values in an expression are the same whenever they are computed. The optimizer has yet
    * to say what the present time is, and that the text `today` is a date.
    */
  private def isFixed(expression: Expression): Boolean = !expression.exists {
    case cast: Cast =>
      cast.child.dataType.isInstanceOf[StringType] && cast.dataType.isInstanceOf[DatetimeType]
    case _: AttributeReference | _: Literal => false
    case other                              => other.children.isEmpty
  }
}
