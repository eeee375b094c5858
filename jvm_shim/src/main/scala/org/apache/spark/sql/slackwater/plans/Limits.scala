package org.apache.spark.sql.slackwater.plans

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.{LIMIT, OFFSET, WINDOW}
import org.apache.spark.sql.slackwater.protocol.DataErrors
import org.apache.spark.sql.slackwater.scan.optimizer.FirstRows
import org.apache.spark.sql.types.{CalendarIntervalType, DataType, MapType, VariantType}

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

/** Rows with their numbers, from 1. */
private[plans] final case class RowNumbers(plan: Window, number: Attribute)

private[plans] object RowNumbers {
  private val frame = SpecifiedWindowFrame(RowFrame, UnboundedPreceding, CurrentRow)

  def apply(child: LogicalPlan, partition: Seq[Expression], order: Seq[SortOrder]): RowNumbers = {
    val spec = WindowSpecDefinition(partition, order, frame)
    val number = Alias(WindowExpression(RowNumber(), spec), "number")()
    RowNumbers(Window(Seq(number), partition, order, child), number.toAttribute)
  }
}

/** Of all rows, only those are numbered that are among the first of their bucket: a change is looked
  * at with the rows of its buckets, which are few however many rows there are.
  *
  * The order has to leave nothing open.
  */
private[plans] object NumberInBuckets extends Rule[LogicalPlan] {

  /** Each bucket of a later step has the rows of 64 buckets of the step before. */
  private val steps = Seq(4096, 64)

  /** With more rows to keep, buckets would leave out too few. */
  private val mostKept = 4096

  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformUpWithPruning(_.containsPattern(WINDOW)) {
      case filter @ FirstRows(count, window) if window.partitionSpec.isEmpty && count <= mostKept =>
        filter.copy(child = window.copy(child = firstOf(window, count)))
    }

  private def firstOf(window: Window, count: Int): LogicalPlan =
    steps.foldLeft(window.child) { (below, size) =>
      Buckets.of(below.output, size).fold(below) { bucket =>
        val numbered = RowNumbers(below, Seq(bucket), window.orderSpec)
        Project(
          below.output,
          Filter(LessThanOrEqual(numbered.number, Literal(count)), numbered.plan)
        )
      }
    }
}

/** Rows divided by a hash of their columns, the same way at all times. */
private[plans] object Buckets {

  /** The number of a row's bucket, of `size`, a power of two. */
  def of(columns: Seq[Expression], size: Int): Option[Expression] = {
    val hashed = columns.filter(column => !column.dataType.existsRecursively(isNotHashed))
    Option.when(hashed.nonEmpty)(
      BitwiseAnd(new Murmur3Hash(hashed), Literal(size - 1))
    )
  }

  private def isNotHashed(dataType: DataType): Boolean = dataType match {
    case _: MapType | _: VariantType | CalendarIntervalType => true
    case _                                                  => false
  }
}
