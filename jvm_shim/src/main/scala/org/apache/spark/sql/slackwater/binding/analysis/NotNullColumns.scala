package org.apache.spark.sql.slackwater.binding.analysis

import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases
import org.apache.spark.sql.catalyst.expressions.objects.AssertNotNull
import org.apache.spark.sql.catalyst.plans.logical.{
  LogicalPlan,
  MergeIntoTable,
  UpdateTable,
  V2WriteCommand
}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.slackwater.binding.Ours
import org.apache.spark.sql.slackwater.protocol.DataErrors
import org.apache.spark.sql.slackwater.shims.V2Relation
import org.apache.spark.sql.slackwater.write.{NotNull, NotNullColumn}

/** The check of NOT NULL columns that Spark puts into a write, with our own error.
  *
  * Spark's speaks of Scala's types and does not name the table.
  */
object NotNullColumns extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    // What Spark adds is all in the root of the query; checks below are the query's own.
    case write: V2WriteCommand if write.resolved && name(write.table).isDefined =>
      write.withNewQuery(checked(write.query, name(write.table).get))
    case update: UpdateTable if name(update.table).isDefined =>
      checked(update, name(update.table).get)
    case merge: MergeIntoTable if name(merge.targetTable).isDefined =>
      checked(merge, name(merge.targetTable).get)
  }

  private def checked(plan: LogicalPlan, table: String): LogicalPlan =
    plan.transformExpressions { case AssertNotNull(child, path) =>
      NotNull(child, NotNullColumn(table, path.filterNot(_.isEmpty).mkString(".")))
    }

  private def name(table: LogicalPlan): Option[String] = EliminateSubqueryAliases(table) match {
    case V2Relation(Ours(found)) => Some(DataErrors.nameOf(found.description))
    case _                       => None
  }
}
