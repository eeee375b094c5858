package org.apache.spark.sql.slackwater.binding

import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.connector.write.RowLevelOperationTable
import org.apache.spark.sql.slackwater.catalog.SlackwaterTable
import org.apache.spark.sql.slackwater.shims.V2Relation

/** The collection behind a table, also when a row-level operation wraps it. */
private[slackwater] object Ours {
  def unapply(table: AnyRef): Option[SlackwaterTable] = table match {
    case ours: SlackwaterTable                            => Some(ours)
    case RowLevelOperationTable(ours: SlackwaterTable, _) => Some(ours)
    case _                                                => None
  }

  /** Whether a relation, under whatever name, is one of ours. */
  def is(table: LogicalPlan): Boolean = EliminateSubqueryAliases(table) match {
    case V2Relation(Ours(_)) => true
    case _                   => false
  }
}
