package org.apache.spark.sql.slackwater.plans

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression

/** The function that a window calls, what it is called with, and what its frame counts in. */
private[plans] final case class WindowCall(
    called: Expression,
    args: Seq[Expression],
    frame: FrameType
)

private[plans] object WindowCall {
  def of(call: NamedExpression): WindowCall = call match {
    case Alias(WindowExpression(function, spec), _) =>
      val called = function match {
        case aggregate: AggregateExpression => aggregate.aggregateFunction
        case other                          => other
      }
      spec.frameSpecification match {
        case frame: SpecifiedWindowFrame =>
          WindowCall(called, called.children, frame.frameType)
        case other => throw new IllegalStateException(s"a frame that is not specified: $other")
      }
    case other => throw new IllegalStateException(s"no call of a window function: ${other.sql}")
  }
}
