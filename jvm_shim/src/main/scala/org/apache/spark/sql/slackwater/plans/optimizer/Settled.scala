package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.slackwater.plans.expressions.{KeyIssues, Moments}
import org.apache.spark.sql.types.ArrayType

/** Which aggregates have one value for the same rows, in whichever order these come. */
private[plans] object Settled {

  /** In a group, once `SettleAggregates` has done its part. */
  def inGroups(function: AggregateFunction): Boolean = function match {
    case list: CollectList => isSortable(list)
    case set: CollectSet   => isSortable(set)
    case other             => inWindows(other)
  }

  def inWindows(function: AggregateFunction): Boolean = function match {
    case _: Count | _: Sum | _: Average | _: Min | _: Max  => true
    case _: BitAndAgg | _: BitOrAgg | _: BitXorAgg         => true
    case _: Percentile | _: PercentileDisc | _: PivotFirst => true
    case _: HyperLogLogPlusPlus | _: CountMinSketchAgg     => true
    case by: MaxBy       => RowOrdering.isOrderable(by.left.dataType)
    case by: MinBy       => RowOrdering.isOrderable(by.left.dataType)
    case some: MaxMinByK => RowOrdering.isOrderable(some.valueExpr.dataType)
    case mode: Mode      =>
      RowOrdering.isOrderable(mode.dataType) && KeyIssues.of(mode.dataType).isEmpty
    // It is called by an operator of its own.
    case _: PythonFuncExpression => true
    case other                   => Moments.of(other).nonEmpty
  }

  private def isSortable(list: AggregateFunction): Boolean = list.dataType match {
    case ArrayType(element, _) => RowOrdering.isOrderable(element)
    case _                     => false
  }
}
