package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.{LIMIT, OFFSET}
import org.apache.spark.sql.slackwater.plans.logical.{KeptRecursion, RowLimit}
import org.apache.spark.sql.slackwater.protocol.DataErrors

/** LIMIT and OFFSET are conditions of the rows' numbers. What ORDER BY leaves open, or all where
  * there is none, `TotalOrdering` decides.
  *
  * Raises SLACKWATER_UNSUPPORTED for one that may be what ends a recursion: it takes the rows that
  * the recursion finds first.
  */
private[plans] object NumberLimited extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    LimitSorted(plan).transformDownWithPruning(_.containsAnyPattern(LIMIT, OFFSET)) {
      case RowLimit(RowLimit(count, offset, sort: Sort)) if sort.global =>
        numbered(count, offset, sort.child, sort.order)
      case RowLimit(RowLimit(_, _, rows)) if rows.exists(isRecursion) =>
        throw DataErrors.limitOfRecursion()
      case RowLimit(RowLimit(count, offset, rows)) => numbered(count, offset, rows, Nil)
    }

  private def numbered(
      count: Option[Int],
      offset: Int,
      rows: LogicalPlan,
      order: Seq[SortOrder]
  ): LogicalPlan = {
    val numbered = RowNumbers(rows, Nil, order)
    val last = count.map(n => math.min(offset.toLong + n, Int.MaxValue.toLong).toInt)
    val conditions = Option.when(offset > 0)(GreaterThan(numbered.number, Literal(offset))) ++
      last.map(n => LessThanOrEqual(numbered.number, Literal(n)))
    val kept = conditions
      .reduceOption[Expression](And)
      .fold[LogicalPlan](numbered.plan)(Filter(_, numbered.plan))
    Project(rows.output, kept)
  }

  private def isRecursion(plan: LogicalPlan): Boolean = plan match {
    case _: KeptRecursion | _: UnionLoop => true
    case _                               => false
  }
}
