package org.apache.spark.sql.slackwater.plans

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
import org.apache.spark.sql.catalyst.plans.InnerLike
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF

/** Python functions of a row are called by projections alone: others read the values as columns.
  *
  * A filter calls them for the rows for which all else holds that it asks, as Spark's does.
  */
private[plans] object CallPythonInProjections extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformUpWithPruning(
    _.containsPattern(PYTHON_UDF)
  ) {
    case project: Project => project
    case filter: Filter   => PythonCalls.filtered(filter)
    case join: Join       => joined(join)
    case whole: Aggregate => aggregated(whole)
    case node: UnaryNode  => PythonCalls.below(node)
  }

  /** A condition on both sides is asked above an inner join. */
  private def joined(join: Join): LogicalPlan = join.joinType match {
    case _: InnerLike =>
      val (python, rest) = join.condition.toSeq
        .flatMap(JoinCondition.conjuncts)
        .partition(PythonCalls.isIn)
      val plain = join.copy(condition = rest.reduceOption(And))
      python.reduceOption(And).fold[LogicalPlan](plain) { condition =>
        PythonCalls.filtered(Filter(condition, plain))
      }
    case _ => join
  }

  /** What is called with a result stands above, what is called with a row below. */
  private def aggregated(whole: Aggregate): LogicalPlan = {
    val (above, results) = PythonCalls.ofResults(whole)
    val settled = PythonCalls.below(results)
    above.fold(settled)(columns => Project(columns, settled))
  }
}

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
