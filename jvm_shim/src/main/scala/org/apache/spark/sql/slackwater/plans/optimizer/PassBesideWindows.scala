package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.{WINDOW, WINDOW_EXPRESSION}

/** What is no call of a window function stands beside the window: Spark lists columns of the outer
  * query among the calls when it takes a window out of a LATERAL subquery, and knows `count(NULL)`
  * to be 0.
  */
private[plans] object PassBesideWindows extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformUpWithPruning(_.containsPattern(WINDOW)) {
      case window: Window if !window.windowExpressions.forall(isCall) =>
        val calls = window.windowExpressions.filter(isCall)
        val columns = window.windowExpressions.map(e => if (isCall(e)) e.toAttribute else e)
        val below = if (calls.isEmpty) window.child else window.copy(windowExpressions = calls)
        Project(window.child.output ++ columns, below)
    }

  private def isCall(expression: NamedExpression): Boolean =
    expression.containsPattern(WINDOW_EXPRESSION)
}
