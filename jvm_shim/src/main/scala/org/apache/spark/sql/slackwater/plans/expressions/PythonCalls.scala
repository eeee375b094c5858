package org.apache.spark.sql.slackwater.plans.expressions

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.slackwater.plans.logical.JoinCondition

private[plans] object PythonCalls {

  def isIn(expression: Expression): Boolean = expression.exists(isCall)

  private def isCall(expression: Expression): Boolean = PythonUDF.isScalarPythonUDF(expression)

  def filtered(filter: Filter): LogicalPlan = {
    val (python, rest) = JoinCondition.conjuncts(filter.condition).partition(isIn)
    val asked = rest.reduceOption(And).fold(filter.child)(Filter(_, filter.child))
    python.reduceOption(And).fold(asked)(condition => below(Filter(condition, asked)))
  }

  /** The node over a projection that has called what the node calls of its input's rows. */
  def below(node: UnaryNode): LogicalPlan = {
    val columns = mutable.LinkedHashMap.empty[Expression, Alias]
    val replaced = node.transformExpressionsDown {
      case call if isCall(call) && call.references.subsetOf(node.child.outputSet) =>
        columns.getOrElseUpdate(call.canonicalized, Alias(call, "called")()).toAttribute
    }
    if (columns.isEmpty) node
    else {
      val calling = Project(node.child.output ++ columns.values, node.child)
      val above = replaced.withNewChildren(Seq(calling))
      if (above.output.map(_.exprId) == node.output.map(_.exprId)) above
      else Project(node.output, above)
    }
  }

  /** The aggregate without the calls of its results, and, where it has any, the columns above it
    * that make them.
    */
  def ofResults(whole: Aggregate): (Option[Seq[NamedExpression]], Aggregate) = {
    val groups = whole.groupingExpressions.map(_.canonicalized).toSet
    def isBelow(e: Expression) = e.isInstanceOf[AggregateExpression] || groups(e.canonicalized)
    def calls(e: Expression): Boolean = !isBelow(e) && (isCall(e) || e.children.exists(calls))
    if (!whole.aggregateExpressions.exists(calls)) (None, whole)
    else {
      val columns = mutable.LinkedHashMap.empty[Expression, NamedExpression]
      def column(e: Expression): Attribute = columns
        .getOrElseUpdate(
          e.canonicalized,
          e match {
            case named: NamedExpression => named
            case other                  => Alias(other, "result")()
          }
        )
        .toAttribute
      whole.groupingExpressions.foreach(column)
      val results = whole.aggregateExpressions.map(_.transformDown {
        case e if isBelow(e) => column(e)
      }.asInstanceOf[NamedExpression])
      (Some(results), whole.copy(aggregateExpressions = columns.values.toSeq))
    }
  }
}
