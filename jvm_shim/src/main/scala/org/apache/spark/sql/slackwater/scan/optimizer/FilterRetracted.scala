package org.apache.spark.sql.slackwater.scan.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.slackwater.scan.logical.{ConcernedRows, ConsolidatedRows}
import org.apache.spark.sql.slackwater.values.Totality

/** Brings the conditions of a statement down to the files of a collection that has retractions, but
  * for those that may fail: a row that is gone is no reason for an error.
  */
private[slackwater] object FilterRetracted extends Rule[LogicalPlan] with PredicateHelper {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformDown {
    case filter @ Filter(condition, rows: ConsolidatedRows) if condition.deterministic =>
      apart(filter)(below => rows.copy(child = Filter(below, rows.child)))
    case filter @ Filter(condition, rows: ConcernedRows) if condition.deterministic =>
      apart(filter) { below =>
        val known = ExpressionSet(rows.conditions)
        val further = splitConjunctivePredicates(below).filterNot(known.contains)
        rows.copy(conditions = rows.conditions ++ further)
      }
  }

  private def apart(filter: Filter)(within: Expression => LogicalPlan): LogicalPlan = {
    val (above, below) = splitConjunctivePredicates(filter.condition).partition(mayRaise)
    below.reduceOption(And).fold[LogicalPlan](filter) { passing =>
      above.reduceOption(And).fold(within(passing))(Filter(_, within(passing)))
    }
  }

  /** Also of what Spark replaces in filters alone, the subqueries of IN and EXISTS. */
  private def mayRaise(condition: Expression): Boolean =
    Totality.mayRaise(condition.transform {
      case one: ScalarSubquery if one.outerAttrs.isEmpty => Literal.create(null, one.dataType)
    })
}
