package org.apache.spark.sql.slackwater.plans.logical

import org.apache.spark.sql.catalyst.analysis.MultiInstanceRelation
import org.apache.spark.sql.catalyst.expressions.AttributeReference
import org.apache.spark.sql.catalyst.plans.logical.{LeafNode, LogicalPlan, Statistics}
import org.apache.spark.sql.slackwater.binding.Ours
import org.apache.spark.sql.slackwater.shims.V2Relation

/** Stands for a collection, of which nothing is known: neither rows nor how many there are.
  *
  * @param fields
  *   the collection's columns that `output` holds. They are an argument of their own because
  *   attributes lose their names when plans are compared.
  */
private[slackwater] final case class CollectionSlot(
    id: String,
    fields: Seq[String],
    override val output: Seq[AttributeReference]
) extends LeafNode
    with MultiInstanceRelation {
  override def newInstance(): LogicalPlan = copy(output = output.map(_.newInstance()))
  override def maxRows: Option[Long] = None
  override def computeStats(): Statistics = Statistics(sizeInBytes = conf.defaultSizeInBytes)
}

private[slackwater] object CollectionSlot {

  /** The ids of the collections that the plan reads, each once. */
  def in(plan: LogicalPlan): Seq[String] =
    plan.collectWithSubqueries { case slot: CollectionSlot => slot.id }.distinct.sorted

  /** The plan with slots for all collections that are read as of the view's own time. */
  def inPlaceOfCollections(plan: LogicalPlan): LogicalPlan = plan.transformUpWithSubqueries {
    case relation @ V2Relation(Ours(table))
        if table.asOf.isEmpty &&
          relation.output.forall(column => table.dataSchema.fieldNames.contains(column.name)) =>
      CollectionSlot(table.id, relation.output.map(_.name), relation.output)
  }
}
