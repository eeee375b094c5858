package org.apache.spark.sql.slackwater.binding.analysis

import org.apache.spark.sql.catalyst.expressions.{BinaryComparison, Expression}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.BINARY_COMPARISON
import org.apache.spark.sql.catalyst.util.toPrettySQL
import org.apache.spark.sql.slackwater.binding.MzNow
import org.apache.spark.sql.slackwater.protocol.DataErrors
import org.apache.spark.sql.types.{DateType, LongType, TimestampNTZType, TimestampType}

/** Says what to compare `mz_now()` with, where it is compared with a date or a timestamp: Spark would
  * only say that the types differ.
  */
private[slackwater] object MzNowCompared extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.resolveExpressionsWithPruning(_.containsPattern(BINARY_COMPARISON)) {
      case comparison: BinaryComparison if comparison.childrenResolved =>
        refuse(comparison.left, comparison.right)
        refuse(comparison.right, comparison.left)
        comparison
    }

  private def refuse(now: Expression, other: Expression): Unit =
    if (now.dataType == LongType && MzNow.isIn(now)) {
      val milliseconds = other.dataType match {
        case TimestampType               => Some(s"unix_millis(${toPrettySQL(other)})")
        case TimestampNTZType | DateType =>
          Some(s"unix_millis(CAST(${toPrettySQL(other)} AS TIMESTAMP))")
        case _ => None
      }
      milliseconds.foreach { advice =>
        throw DataErrors.mzNowComparison(toPrettySQL(other), other.dataType.sql, advice)
      }
    }
}
