package org.apache.spark.sql.slackwater.plans.logical

import org.apache.spark.sql.catalyst.analysis.MultiInstanceRelation
import org.apache.spark.sql.catalyst.expressions.{Alias, AttributeReference}
import org.apache.spark.sql.catalyst.plans.logical.{LeafNode, LogicalPlan, Project, Statistics}
import org.apache.spark.sql.slackwater.binding.OurView
import org.apache.spark.sql.types.DataType

/** Stands for a plain view that stays whole: rules see its columns and not its query, so that the
  * query has the same form in each plan that reads the view.
  *
  * @param query
  *   in its normal form, with the columns of `output` in their order
  */
private[slackwater] final case class KeptView(
    id: String,
    override val output: Seq[AttributeReference],
    query: LogicalPlan
) extends LeafNode
    with MultiInstanceRelation {
  override def newInstance(): LogicalPlan = copy(output = output.map(_.newInstance()))
  override def maxRows: Option[Long] = None
  override def computeStats(): Statistics = Statistics(sizeInBytes = conf.defaultSizeInBytes)
}

private[plans] object KeptView {

  /** The analyzed plan with leaves for those of its views that are to stay whole, by their ids. One
    * whose columns have other types in the normal form is expanded as any other view.
    */
  def inPlaceOfViews(plan: LogicalPlan, ids: Set[String])(
      normalised: LogicalPlan => LogicalPlan
  ): LogicalPlan =
    if (ids.isEmpty) plan
    else
      plan.transformUpWithSubqueries {
        case view @ OurView(id) if ids(id) =>
          val output = view.output.collect { case column: AttributeReference => column }
          val query = normalised(view)
          val isSame = output.size == view.output.size && output.size == query.output.size &&
            output.zip(query.output).forall { case (column, value) =>
              DataType.equalsStructurally(column.dataType, value.dataType)
            }
          if (isSame) KeptView(id, output, query) else view
      }

  /** The plan with the queries of such views, and these queries, those that are read before those
    * that read them.
    */
  def expanded(plan: LogicalPlan): (LogicalPlan, Seq[LogicalPlan]) = {
    val queries = Seq.newBuilder[LogicalPlan]
    val whole = plan.transformUpWithSubqueries { case view: KeptView =>
      val (inner, below) = expanded(view.query)
      val query = FreshExprIds(inner)
      queries ++= below += query
      Project(
        query.output.zip(view.output).map { case (value, column) =>
          Alias(value, column.name)(column.exprId)
        },
        query
      )
    }
    (whole, queries.result())
  }
}
