package org.apache.spark.sql.slackwater.scan.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.FILTER
import org.apache.spark.sql.slackwater.scan.logical.{ConcernedRows, ConsolidatedRows}
import org.apache.spark.sql.slackwater.values.Totality

/** Brings the conditions of a statement down to the files of a collection that has retractions, but
  * for those that may fail: a row that is gone is no reason for an error.
  */
private[slackwater] object FilterRetracted extends Rule[LogicalPlan] with PredicateHelper {
  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformDownWithPruning(_.containsPattern(FILTER)) {
      case filter @ Filter(condition, rows: ConsolidatedRows) if condition.deterministic =>
        apart(filter)(below => rows.copy(child = Filter(below.reduce(And), rows.child)))
      case filter @ Filter(condition, rows: ConcernedRows) if condition.deterministic =>
        apart(filter) { below =>
          val known = ExpressionSet(rows.conditions)
          rows.copy(conditions = rows.conditions ++ below.filterNot(known.contains))
        }
    }

  private def apart(filter: Filter)(within: Seq[Expression] => LogicalPlan): LogicalPlan = {
    val (above, below) = splitConjunctivePredicates(filter.condition).partition(mayRaise)
    if (below.isEmpty) filter
    else above.reduceOption(And).foldRight(within(below))(Filter(_, _))
  }

  /** Also of what Spark replaces in filters alone, the subqueries of IN and EXISTS. */
  private def mayRaise(condition: Expression): Boolean =
    Totality.mayRaise(condition.transform {
      case one: ScalarSubquery if one.outerAttrs.isEmpty => Literal.create(null, one.dataType)
    })
}
