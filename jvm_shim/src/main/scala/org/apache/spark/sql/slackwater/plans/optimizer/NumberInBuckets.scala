package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.WINDOW
import org.apache.spark.sql.slackwater.scan.optimizer.FirstRows

/** Of all rows, only those are numbered that are among the first of their bucket: a change is looked
  * at with the rows of its buckets, which are few however many rows there are.
  *
  * The order has to leave nothing open.
  */
private[plans] object NumberInBuckets extends Rule[LogicalPlan] {

  /** Each bucket of a later step has the rows of 64 buckets of the step before. */
  private val steps = Seq(4096, 64)

  /** With more rows to keep, buckets would leave out too few. */
  private val mostKept = 4096

  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformUpWithPruning(_.containsPattern(WINDOW)) {
      case filter @ FirstRows(count, window) if window.partitionSpec.isEmpty && count <= mostKept =>
        filter.copy(child = window.copy(child = firstOf(window, count)))
    }

  private def firstOf(window: Window, count: Int): LogicalPlan =
    steps.foldLeft(window.child) { (below, size) =>
      Buckets.of(below.output, size).fold(below) { bucket =>
        val numbered = RowNumbers(below, Seq(bucket), window.orderSpec)
        Project(
          below.output,
          Filter(LessThanOrEqual(numbered.number, Literal(count)), numbered.plan)
        )
      }
    }
}
