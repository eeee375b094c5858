package org.apache.spark.sql.slackwater.programs

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.expressions.{
  And,
  AttributeReference,
  BoundReference,
  EqualNullSafe,
  EqualTo,
  Expression
}
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers
import org.apache.spark.sql.slackwater.plans.AnalyzedView

/** The expressions of a view, and where the columns are that they read.
  *
  * @param aliases
  *   columns that are other columns under a new number
  */
private[slackwater] final class ExpressionBinder(
    view: AnalyzedView,
    aliases: scala.collection.Map[Int, Int]
) {
  private val numbers = view.columns.zipWithIndex.map { case (a, i) => a.exprId -> i }.toMap

  /** The expression over rows whose fields are the columns `layout`, by number. */
  def bound(handle: Int, layout: Seq[Int]): Expression = over(view.handles(handle), layout)

  def over(expression: Expression, layout: Seq[Int]): Expression = expression.transform {
    case a: AttributeReference if numbers.contains(a.exprId) => column(numbers(a.exprId), layout)
  }

  /** Where the column stands now it may be NULL, above an outer join, where it was not before. */
  def column(number: Int, layout: Seq[Int]): Expression =
    BoundReference(position(number, layout), view.columns(number).dataType, nullable = true)

  private def position(number: Int, layout: Seq[Int]): Int = layout.indexOf(number) match {
    case -1 =>
      val other = aliases.getOrElse(
        number,
        throw new IllegalStateException(s"column $number is not among $layout")
      )
      position(other, layout)
    case at => at
  }

  def project(expressions: Seq[Expression]): Evaluation = new Evaluation(expressions)

  def columns(numbers: Seq[Int], layout: Seq[Int]): Evaluation =
    project(numbers.map(column(_, layout)))

  /** Rows that are equal as keys have equal bytes. */
  def keys(handles: Seq[Int], layout: Seq[Int]): Seq[Expression] =
    handles.map(h => NormalizeFloatingNumbers.normalize(bound(h, layout)))

  /** `conditions`: each an expression, or the equality of two. */
  def condition(conditions: Seq[JsonNode], layout: Seq[Int]): Option[Condition] =
    conditions.map(conjunct(_, layout)).reduceOption[Expression](And).map(new Condition(_))

  private def conjunct(node: JsonNode, layout: Seq[Int]): Expression =
    if (node.isInt) bound(node.asInt, layout)
    else {
      val left = bound(node.get("left").asInt, layout)
      val right = bound(node.get("right").asInt, layout)
      if (node.get("null_safe").asBoolean) EqualNullSafe(left, right) else EqualTo(left, right)
    }
}
