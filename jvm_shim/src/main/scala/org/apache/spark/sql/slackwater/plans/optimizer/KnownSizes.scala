package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule

/** How large an array or a map is that is made of so many values, nobody has to make it for.
  *
  * Spark's optimizer knows it too, and so does not see what could not be made: a map with a NULL key.
  */
private[plans] object KnownSizes extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformAllExpressions {
    case Size(made: CreateArray, _) if made.children.forall(isPlain) => Literal(made.children.size)
    case Size(made: CreateMap, _) if made.children.forall(isPlain)   =>
      Literal(made.children.size / 2)
  }

  private def isPlain(value: Expression): Boolean = value match {
    case _: Attribute | _: Literal         => true
    case cast: Cast if !conf.ansiEnabled   => isPlain(cast.child)
    case _: NoThrow if value.deterministic => value.children.forall(isPlain)
    case _                                 => false
  }
}
