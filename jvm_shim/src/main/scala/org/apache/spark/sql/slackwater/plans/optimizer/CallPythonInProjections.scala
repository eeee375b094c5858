package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.InnerLike
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF
import org.apache.spark.sql.slackwater.plans.expressions.PythonCalls
import org.apache.spark.sql.slackwater.plans.logical.JoinCondition

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
