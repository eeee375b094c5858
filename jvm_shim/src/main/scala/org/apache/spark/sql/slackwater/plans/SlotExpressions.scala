package org.apache.spark.sql.slackwater.plans

import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, AttributeMap, Expression}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project}
import org.apache.spark.sql.slackwater.plans.logical.CollectionSlot

/** The columns of projections over one collection, each as an expression over its columns. */
private[slackwater] object SlotExpressions {

  /** Over attributes with the names of the collection's columns; Nil: the plan does more. */
  def of(plan: LogicalPlan): Seq[Expression] = plan match {
    case slot: CollectionSlot =>
      slot.output.zip(slot.fields).map { case (column, field) => column.withName(field) }
    case Project(list, child) =>
      val below = AttributeMap(child.output.zip(of(child)))
      if (below.size < child.output.size) Nil
      else
        list.map { each =>
          val value = each match {
            case Alias(inner, _) => inner
            case other           => other
          }
          value.transform { case a: Attribute => below.getOrElse(a, a) }
        }
    case _ => Nil
  }
}
