package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions.AttributeSet
import org.apache.spark.sql.catalyst.plans.logical.{Generate, LogicalPlan, Union, UnionLoop}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.slackwater.plans.logical.CollectionSlot

/** Leaves slots the columns that the plan needs. */
private[plans] object PruneSlots extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = {
    val used = AttributeSet(plan.collect { case node => needs(node) }.flatten ++ plan.output)
    def prune(node: LogicalPlan): LogicalPlan = node match {
      case slot: CollectionSlot =>
        val kept = slot.fields.zip(slot.output).filter { case (_, column) => used.contains(column) }
        slot.copy(fields = kept.map(_._1), output = kept.map(_._2))
      case generate: Generate =>
        // What it drops it knows by position.
        val dropped = AttributeSet(generate.unrequiredChildIndex.map(generate.child.output))
        val child = prune(generate.child)
        val positions = child.output.indices.filter(i => dropped.contains(child.output(i)))
        generate.copy(unrequiredChildIndex = positions, child = child)
      case other => other.mapChildren(prune)
    }
    prune(plan)
  }

  /** The columns of a union correspond by position. */
  private def needs(node: LogicalPlan) = node match {
    case union: Union    => union.children.flatMap(_.output)
    case loop: UnionLoop => loop.children.flatMap(_.output)
    case other           => other.references.toSeq
  }
}
