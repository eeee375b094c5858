package org.apache.spark.sql.slackwater.plans.logical

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE

/** LIMIT and OFFSET, which Spark spreads over up to three operators. */
private[plans] final case class RowLimit(count: Option[Int], offset: Int, child: LogicalPlan)

private[plans] object RowLimit {
  def unapply(plan: LogicalPlan): Option[RowLimit] = plan match {
    case GlobalLimit(Value(count), LocalLimit(Value(same), child)) if count == same =>
      child match {
        case Offset(Value(offset), below) => Some(RowLimit(Some(count), offset, below))
        case _                            => Some(RowLimit(Some(count), 0, child))
      }
    case Offset(Value(offset), child) => Some(RowLimit(None, offset, child))
    case _                            => None
  }

  private object Value {
    def unapply(expression: Expression): Option[Int] =
      if (!expression.foldable || expression.containsPattern(CURRENT_LIKE)) None
      else Option(expression.eval()).collect { case number: Int => number }
  }
}
