package org.apache.spark.sql.slackwater.plans

import org.apache.spark.sql.catalyst.expressions._

/** What the columns are called where an expression stands: their numbers and what may be NULL. */
private[plans] final case class Scope(columns: Map[ExprId, Scope.Seen]) {
  def number(attribute: Attribute): Int = seen(attribute.exprId).number
  def ++(other: Scope): Scope = Scope(columns ++ other.columns)

  private[plans] def seen(id: ExprId): Scope.Seen = columns.getOrElse(
    id,
    throw new IllegalStateException(s"no input of the operator has the column $id")
  )
}

private[plans] object Scope {
  final case class Seen(number: Int, nullable: Boolean)

  def of(output: Seq[Attribute], numbers: Seq[Int]): Scope = Scope(
    output.zip(numbers).map { case (a, number) => a.exprId -> Seen(number, a.nullable) }.toMap
  )
}
