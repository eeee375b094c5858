package org.apache.spark.sql.slackwater.scan

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.GENERATE

/** Where only the first n rows are kept, of all or of each partition, no row is needed more than n
  * times: a row that is there very often is neither sorted nor sent that often.
  */
private[slackwater] object LimitReplicas extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformWithPruning(_.containsPattern(GENERATE)) {
      case limit @ LocalLimit(IntegerLiteral(count), rows) =>
        limit.copy(child = bounded(rows, count))
      case limit @ GlobalLimit(IntegerLiteral(count), rows) =>
        limit.copy(child = bounded(rows, count))
      case filter @ FirstRows(count, window) =>
        filter.copy(child = window.copy(child = bounded(window.child, count)))
    }

  private def bounded(rows: LogicalPlan, count: Int): LogicalPlan = rows match {
    case project @ Project(columns, child) if columns.forall(_.deterministic) =>
      project.copy(child = bounded(child, count))
    case filter @ Filter(condition, child) if condition.deterministic =>
      filter.copy(child = bounded(child, count))
    case sort: Sort        => sort.copy(child = bounded(sort.child, count))
    case limit: LocalLimit => limit.copy(child = bounded(limit.child, count))
    case union: Union      => union.copy(children = union.children.map(bounded(_, count)))
    case generate @ Generate(replicas: ReplicateByMultiplicity, _, _, _, _, _)
        if replicas.atMost > count =>
      generate.copy(generator = replicas.copy(atMost = math.max(0, count)))
    case other => other
  }
}

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
