package org.apache.spark.sql.slackwater.scan

import org.apache.spark.sql.catalyst.expressions._

/** A condition under which an expression has one of some values: the form of condition that an index
  * with this expression as its key serves.
  */
private[slackwater] final class FixedValues private (
    val expression: Expression,
    found: => Option[Seq[Any]]
) {

  /** NULL is among them where the condition holds for it; None: to compute them fails, as the condition
    * will.
    */
  def values: Option[Seq[Any]] = found
}

private[slackwater] object FixedValues {

  /** All that the condition, which is no conjunction, fixes; each is enough to look rows up. */
  def of(condition: Expression): Seq[FixedValues] = {
    val itself = truth(condition, value = true)
    condition match {
      case EqualTo(left, right)                  => equal(left, right, isNullSafe = false) :+ itself
      case EqualNullSafe(left, right)            => equal(left, right, isNullSafe = true) :+ itself
      case In(key, list) if list.forall(isValue) =>
        Seq(new FixedValues(key, ofAll(list).map(_.filter(_ != null).distinct)), itself)
      case InSet(key, set) =>
        Seq(new FixedValues(key, Some(set.iterator.filter(_ != null).toSeq)), itself)
      case IsNull(key) => Seq(new FixedValues(key, Some(Seq(null))), itself)
      case Not(key)    => Seq(truth(key, value = false), itself)
      case _           => Seq(itself)
    }
  }

  private def truth(key: Expression, value: Boolean): FixedValues =
    new FixedValues(key, Some(Seq(value)))

  private def equal(left: Expression, right: Expression, isNullSafe: Boolean): Seq[FixedValues] =
    Seq(left -> right, right -> left).collect {
      case (key, value) if isValue(value) =>
        new FixedValues(key, ofAll(Seq(value)).map(_.filter(isNullSafe || _ != null)))
    }

  private def isValue(expression: Expression): Boolean =
    expression.foldable && expression.deterministic

  private def ofAll(list: Seq[Expression]): Option[Seq[Any]] =
    IndexScan.attempt(Some(list.map(_.eval())))
}
