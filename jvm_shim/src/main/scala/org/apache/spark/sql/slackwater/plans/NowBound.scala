package org.apache.spark.sql.slackwater.plans

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.Filter
import org.apache.spark.sql.slackwater.binding.MzNow
import org.apache.spark.sql.slackwater.plans.logical.JoinCondition
import org.apache.spark.sql.types.LongType

/** `mz_now() <comparison> value`, where the value is a BIGINT over a row, in ms. */
private[slackwater] final case class NowBound(comparison: String, value: Expression)

private[slackwater] object NowBound {

  /** The bounds that a filter consists of; None if it is anything else besides. */
  private[plans] def all(filter: Filter): Option[Seq[NowBound]] = {
    val bounds = JoinCondition.conjuncts(filter.condition).map(of)
    if (bounds.forall(_.isDefined)) Some(bounds.flatten) else None
  }

  private def of(conjunct: Expression): Option[NowBound] = conjunct match {
    case LessThan(l, r)           => either("<", l, r, ">")
    case LessThanOrEqual(l, r)    => either("<=", l, r, ">=")
    case GreaterThan(l, r)        => either(">", l, r, "<")
    case GreaterThanOrEqual(l, r) => either(">=", l, r, "<=")
    case EqualTo(l, r)            => either("=", l, r, "=")
    case _                        => None
  }

  private def either(
      forward: String,
      left: Expression,
      right: Expression,
      backward: String
  ): Option[NowBound] = (left, right) match {
    case (MzNow(), value) if isBound(value) => Some(NowBound(forward, value))
    case (value, MzNow()) if isBound(value) => Some(NowBound(backward, value))
    case _                                  => None
  }

  private def isBound(value: Expression): Boolean =
    value.dataType == LongType && !MzNow.isIn(value)
}
