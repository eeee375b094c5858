package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.Aggregate

/** `session_window` in GROUP BY: Spark merges such groups where they overlap, and knows them by what
  * is noted at their column.
  */
private[plans] object SessionWindows {
  def areIn(aggregate: Aggregate): Boolean = aggregate.groupingExpressions.exists(isOne)

  def isOne(group: Expression): Boolean = group match {
    case named: NamedExpression => named.metadata.contains(SessionWindow.marker)
    case _                      => false
  }
}
