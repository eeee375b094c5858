package org.apache.spark.sql.slackwater.bridge

import org.apache.spark.sql.catalyst.expressions.{Expression, Literal, SpecifiedWindowFrame}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan

/** Bounds of frames as literals, which Spark takes for granted where it executes them. */
private[bridge] object WindowFrames {
  def apply(plan: LogicalPlan): LogicalPlan = plan.transformAllExpressions {
    case frame: SpecifiedWindowFrame =>
      frame.copy(lower = literal(frame.lower), upper = literal(frame.upper))
  }

  private def literal(bound: Expression): Expression =
    if (bound.foldable) Literal.create(bound.eval(), bound.dataType) else bound
}
