package org.apache.spark.sql.slackwater.plans.logical

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.{Join, LogicalPlan}

/** An equality between the sides of a join. */
private[plans] final case class JoinKey(left: Expression, right: Expression, nullSafe: Boolean)

/** `left = right`, or not known to differ: how NOT IN compares. `condition` is the whole of it. */
private[plans] final case class NullAware(
    condition: Expression,
    left: Expression,
    right: Expression
)

/** The condition of a join in its parts; `nullAware` are in `residual` as well. */
private[plans] final case class JoinCondition(
    keys: Seq[JoinKey],
    residual: Seq[Expression],
    nullAware: Seq[NullAware]
)

private[plans] object JoinCondition extends PredicateHelper {
  def conjuncts(condition: Expression): Seq[Expression] = splitConjunctivePredicates(condition)

  def of(join: Join): JoinCondition = {
    val parts =
      join.condition.toSeq.flatMap(conjuncts).map(conjunct => conjunct -> key(conjunct, join))
    val residual = parts.collect { case (conjunct, None) => conjunct }
    JoinCondition(parts.flatMap(_._2), residual, residual.flatMap(nullAware(_, join)))
  }

  private def key(conjunct: Expression, join: Join): Option[JoinKey] = conjunct match {
    case EqualTo(l, r)       => sides(l, r, join).map { case (a, b) => JoinKey(a, b, false) }
    case EqualNullSafe(l, r) => sides(l, r, join).map { case (a, b) => JoinKey(a, b, true) }
    case _                   => None
  }

  private def nullAware(conjunct: Expression, join: Join): Option[NullAware] = conjunct match {
    case Or(equal @ EqualTo(l, r), IsNull(same)) if equal.semanticEquals(same) =>
      sides(l, r, join).map { case (a, b) => NullAware(conjunct, a, b) }
    case _ => None
  }

  private def sides(
      one: Expression,
      other: Expression,
      join: Join
  ): Option[(Expression, Expression)] =
    if (isOf(one, join.left) && isOf(other, join.right)) Some((one, other))
    else if (isOf(other, join.left) && isOf(one, join.right)) Some((other, one))
    else None

  private def isOf(expression: Expression, side: LogicalPlan): Boolean =
    expression.references.nonEmpty && canEvaluate(expression, side)
}
