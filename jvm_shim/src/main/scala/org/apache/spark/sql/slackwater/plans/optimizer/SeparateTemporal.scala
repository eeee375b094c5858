package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.InnerLike
import org.apache.spark.sql.catalyst.plans.logical.{Filter, Join, LogicalPlan}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.slackwater.binding.MzNow
import org.apache.spark.sql.slackwater.plans.logical.JoinCondition

/** What is asked of `mz_now()` becomes a filter of its own: above what else is asked of the same
  * rows, and above an inner join in whose condition it stood.
  */
private[plans] object SeparateTemporal extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformUp {
    case filter: Filter if MzNow.isIn(filter.condition) =>
      val (temporal, rest) = split(filter.condition)
      filtered(temporal, filtered(rest, filter.child))
    case join @ Join(_, _, _: InnerLike, Some(condition), _) if MzNow.isIn(condition) =>
      val (temporal, rest) = split(condition)
      filtered(temporal, join.copy(condition = rest.reduceOption(And)))
  }

  private def split(condition: Expression): (Seq[Expression], Seq[Expression]) =
    JoinCondition.conjuncts(condition).map(settled).partition(MzNow.isIn)

  /** What Spark makes of a condition and its opposite is never true. */
  private def settled(conjunct: Expression): Expression = conjunct match {
    case If(_: IsNull, Literal(null, _), Literal.FalseLiteral) => Literal.FalseLiteral
    case other                                                 => other
  }

  private def filtered(conjuncts: Seq[Expression], plan: LogicalPlan): LogicalPlan =
    conjuncts.reduceOption(And).fold(plan)(Filter(_, plan))
}
