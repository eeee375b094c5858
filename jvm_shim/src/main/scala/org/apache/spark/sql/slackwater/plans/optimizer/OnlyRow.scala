package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.{Count, Min}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.types.{DataType, MapType, StringType}

/** The value of a scalar subquery as the only row of a plan: NULL if the subquery has none, Spark's
  * error if it has several, whoever asks for it.
  */
private[plans] object OnlyRow {
  private val several = "SCALAR_SUBQUERY_TOO_MANY_ROWS"
  private val nothing =
    Literal.create(Map.empty[String, String], MapType(StringType, StringType))

  /** Spark's error, in the place of a value of the type. */
  private[plans] def failure(dataType: DataType): Expression =
    RaiseError(Literal(several), nothing, dataType)

  def apply(plan: LogicalPlan): LogicalPlan = plan.output match {
    case Seq(value)
        if !JoinScalarSubqueries.hasOneRow(plan) && RowOrdering.isOrderable(value.dataType) =>
      val rows = Alias(Count(Literal(1)).toAggregateExpression(), "rows")()
      val least = Alias(Min(value).toAggregateExpression(), value.name)()
      val only = If(
        GreaterThan(rows.toAttribute, Literal(1L)),
        failure(value.dataType),
        least.toAttribute
      )
      Project(Seq(Alias(only, value.name)()), Aggregate(Nil, Seq(rows, least), plan))
    case _ => plan
  }
}
