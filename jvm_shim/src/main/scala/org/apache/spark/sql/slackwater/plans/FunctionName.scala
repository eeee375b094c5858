package org.apache.spark.sql.slackwater.plans

import org.apache.spark.sql.catalyst.analysis.FunctionRegistry
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.MaxMinByK
import org.apache.spark.sql.slackwater.plans.expressions.OrderedAggregate

/** What functions are told apart by, by whichever of its names a query calls one: Spark has one name
  * for one value and for a list of several.
  */
private[plans] object FunctionName {
  def of(function: Expression): String = {
    val own = function.clone()
    own.unsetTagValue(FunctionRegistry.FUNC_ALIAS)
    own match {
      case first: MaxMinByK          => s"${first.prettyName}_k"
      case ordered: OrderedAggregate => of(ordered.function)
      case other                     => other.prettyName
    }
  }
}
