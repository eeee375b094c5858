package org.apache.spark.sql.slackwater.binding.analysis

import org.apache.spark.sql.{classic, SparkSession}
import org.apache.spark.sql.catalyst.analysis.{EliminateSubqueryAliases, UnresolvedRelation}
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.Literal.TrueLiteral
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.slackwater.process.SparkSessions

/** Puts [[Pending]] into the commands that may be about tables of ours. */
private[slackwater] final case class KeepPending(session: SparkSession) extends Rule[LogicalPlan] {
  private lazy val manager = session.asInstanceOf[classic.SparkSession].sessionState.catalogManager

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    // Without a condition the table is emptied, and no row is identified.
    case delete: DeleteFromTable if delete.condition != TrueLiteral && maybeOurs(delete.table) =>
      delete.copy(condition = Pending.after(delete.condition))
    case update: UpdateTable if maybeOurs(update.table) =>
      update.copy(condition = Some(update.condition.fold[Expression](Pending())(Pending.after)))
    case merge: MergeIntoTable if maybeOurs(merge.targetTable) =>
      merge.copy(mergeCondition = Pending.after(merge.mergeCondition))
  }

  private def maybeOurs(target: LogicalPlan): Boolean = EliminateSubqueryAliases(target) match {
    case relation: UnresolvedRelation =>
      val catalog = relation.multipartIdentifier match {
        case head +: rest if rest.nonEmpty && manager.isCatalogRegistered(head) => head
        case _ => manager.currentCatalog.name
      }
      catalog.equalsIgnoreCase(SparkSessions.catalogName)
    case _ => true
  }
}
