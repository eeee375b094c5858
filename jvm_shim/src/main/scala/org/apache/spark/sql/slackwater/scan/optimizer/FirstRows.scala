package org.apache.spark.sql.slackwater.scan.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._

/** Rows of which those are kept whose number is at most a count: the filter as a whole matches. */
private[slackwater] object FirstRows extends PredicateHelper {
  def unapply(filter: Filter): Option[(Int, Window)] = filter match {
    case Filter(condition, window @ Window(Seq(number @ RowNumbered()), _, _, _, _)) =>
      bound(condition, number.toAttribute).map(_ -> window)
    case _ => None
  }

  /** The largest number for which the condition can be true. */
  private def bound(condition: Expression, number: Attribute): Option[Int] = {
    def isNumber(a: Attribute) = a.semanticEquals(number)
    val bounds = splitConjunctivePredicates(condition).collect {
      case LessThanOrEqual(a: Attribute, Literal(n: Int, _)) if isNumber(a)    => n
      case LessThan(a: Attribute, Literal(n: Int, _)) if isNumber(a)           => n - 1
      case EqualTo(a: Attribute, Literal(n: Int, _)) if isNumber(a)            => n
      case GreaterThanOrEqual(Literal(n: Int, _), a: Attribute) if isNumber(a) => n
      case GreaterThan(Literal(n: Int, _), a: Attribute) if isNumber(a)        => n - 1
      case EqualTo(Literal(n: Int, _), a: Attribute) if isNumber(a)            => n
    }
    bounds.minOption
  }

  private object RowNumbered {
    def unapply(function: NamedExpression): Boolean = function match {
      case Alias(WindowExpression(RowNumber(), _), _) => true
      case _                                          => false
    }
  }
}
