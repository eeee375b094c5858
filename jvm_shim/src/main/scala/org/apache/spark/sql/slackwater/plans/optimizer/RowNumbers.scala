package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._

/** Rows with their numbers, from 1. */
private[plans] final case class RowNumbers(plan: Window, number: Attribute)

private[plans] object RowNumbers {
  private val frame = SpecifiedWindowFrame(RowFrame, UnboundedPreceding, CurrentRow)

  def apply(child: LogicalPlan, partition: Seq[Expression], order: Seq[SortOrder]): RowNumbers = {
    val spec = WindowSpecDefinition(partition, order, frame)
    val number = Alias(WindowExpression(RowNumber(), spec), "number")()
    RowNumbers(Window(Seq(number), partition, order, child), number.toAttribute)
  }
}
