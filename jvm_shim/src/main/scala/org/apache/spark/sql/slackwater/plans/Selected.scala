package org.apache.spark.sql.slackwater.plans

import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.binding.{MzNow, OurView}
import org.apache.spark.sql.slackwater.plans.logical.CollectionSlot
import org.apache.spark.sql.slackwater.plans.optimizer.Normalise

/** `SELECT expressions FROM view`, where nothing is left of the view once the plan is normalised. */
private[slackwater] object Selected {

  /** The expressions over attributes with the names of the view's columns, in the form that they have
    * in reads; None: the query is another one, or computes a row from more than one row.
    */
  def of(session: SparkSession, analyzed: LogicalPlan): Option[Seq[Expression]] =
    EliminateSubqueryAliases(analyzed) match {
      case Project(list, view @ OurView(id)) if list.forall(ofOneRow) =>
        val columns = view.output.collect { case column: AttributeReference => column }
        val rows = CollectionSlot(id, columns.map(_.name), columns)
        Some(SlotExpressions.of(Normalise(session, Project(list, rows))))
          .filter(_.size == list.size)
      case _ => None
    }

  private def ofOneRow(expression: Expression): Boolean = !expression.exists {
    case _: PlanExpression[_] | _: OuterReference | _: Generator | _: MzNow => true
    case _: WindowExpression | _: AggregateExpression                       => true
    case other => other.children.isEmpty && !other.deterministic
  }
}
