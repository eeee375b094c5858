package org.apache.spark.sql.slackwater.binding.analysis

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.types.{BooleanType, DataType}

/** Keeps UPDATE, DELETE and MERGE unresolved until [[OwnNames]] has seen them: Spark rewrites them as
  * soon as they are resolved. It is the last operand of their condition.
  */
private[slackwater] case class Pending() extends LeafExpression with Unevaluable {
  override lazy val resolved: Boolean = false
  override def nullable: Boolean = false
  override def dataType: DataType = BooleanType
}

private[slackwater] object Pending {
  def after(condition: Expression): Expression =
    if (is(condition)) condition else And(condition, Pending())

  def without(condition: Expression): Expression = condition match {
    case And(left, Pending()) => left
    case other                => other
  }

  def is(condition: Expression): Boolean = condition match {
    case Pending() | And(_, Pending()) => true
    case _                             => false
  }
}
