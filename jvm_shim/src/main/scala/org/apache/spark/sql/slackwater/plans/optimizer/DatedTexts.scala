package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions.{Cast, Expression, Literal}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.CAST
import org.apache.spark.sql.slackwater.plans.expressions.Dated
import org.apache.spark.sql.types.{StringType, TimestampType}
import org.apache.spark.unsafe.types.UTF8String

/** A text that says a time and no date is no timestamp: Spark takes the date of the day on which it
  * looks, and a view would hold another row tomorrow.
  */
private[plans] object DatedTexts extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformAllExpressionsWithPruning(_.containsPattern(CAST)) {
      case cast @ Cast(text, TimestampType, _, _)
          if text.dataType.isInstanceOf[StringType] && !isDated(text) =>
        cast.copy(child = Dated(text))
    }

  private def isDated(text: Expression): Boolean = text match {
    case _: Dated                      => true
    case Literal(null, _)              => true
    case Literal(known: UTF8String, _) => !Dated.isTimeAlone(known)
    case _                             => false
  }
}
