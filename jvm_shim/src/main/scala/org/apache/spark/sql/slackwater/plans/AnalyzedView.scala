package org.apache.spark.sql.slackwater.plans

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.plans.logical.{CollectionSlot, FreshExprIds, KeptView}
import org.apache.spark.sql.slackwater.plans.optimizer.Normalise
import org.apache.spark.sql.types.DataType

/** A view's plan, taken apart. `docs/internals/analyzed_plans.md` describes `json`.
  *
  * @param nodes
  *   the operators by their numbers, each with all that is below it; the columns of its output are
  *   in the order of `out`
  * @param handles
  *   the expressions by their numbers; the attributes in them are those of `columns`
  * @param selected
  *   of a query that selects from a plain view what `Selected` has
  */
private[slackwater] final case class AnalyzedView(
    nodes: IndexedSeq[LogicalPlan],
    handles: IndexedSeq[Expression],
    columns: IndexedSeq[Attribute],
    json: String,
    selected: Option[Seq[Expression]]
) {

  /** The rows of a node, as `AnalyzedView.over` has them. */
  def snapshot(node: Int, inputs: Map[String, LogicalPlan]): LogicalPlan =
    AnalyzedView.over(nodes(node), inputs)
}

private[slackwater] object AnalyzedView {

  /** Of the form of `json`. */
  val version = 3

  /** Takes the analyzed plan of a query apart; `session` has the settings of the view.
    *
    * @param whole
    *   the ids of plain views whose queries are to be nodes of their own: nothing above them changes
    *   their form
    * @param indexes
    *   of collections, beside the plan
    */
  def of(
      session: SparkSession,
      analyzed: LogicalPlan,
      whole: Set[String] = Set.empty,
      indexes: Seq[KeyedCollection] = Nil
  ): AnalyzedView = session.withActive {
    val leaves = KeptView.inPlaceOfViews(analyzed, whole)(Normalise(session, _))
    val (normalised, views) = KeptView.expanded(Normalise(session, leaves))
    // A cast that only lets elements be NULL goes.
    val kept = DataType.equalsStructurally(normalised.schema, analyzed.schema, true)
    if (!kept) throw new IllegalStateException("normalising has changed the columns of a query")
    new Exporter().view(analyzed, normalised, Selected.of(session, analyzed), views, indexes)
  }

  /** The rows of a plan over slots as an analyzed plan of its own, over `inputs` by the ids of
    * collections.
    *
    * Each call gives new instances, of the inputs too. Raises IllegalArgumentException where an
    * input is missing, or one of its columns is, or has another type.
    */
  def over(plan: LogicalPlan, inputs: Map[String, LogicalPlan]): LogicalPlan = {
    val filled = FreshExprIds(plan).transformUpWithSubqueries { case slot: CollectionSlot =>
      val input = FreshExprIds(
        inputs.getOrElse(
          slot.id,
          throw new IllegalArgumentException(s"there is no input for the collection ${slot.id}")
        )
      )
      Project(
        slot.fields.zip(slot.output).map { case (field, column) => filling(input, field, column) },
        input
      )
    }
    filled.setAnalyzed()
    filled
  }

  private def filling(
      input: LogicalPlan,
      field: String,
      column: AttributeReference
  ): NamedExpression = {
    val found = input.output
      .find(a => a.name == field && DataType.equalsStructurally(a.dataType, column.dataType, true))
      .getOrElse(
        throw new IllegalArgumentException(
          s"the input has no column $field of the type ${column.dataType.sql}"
        )
      )
    val value = if (found.nullable && !column.nullable) KnownNotNull(found) else found
    Alias(value, field)(column.exprId, column.qualifier)
  }
}
