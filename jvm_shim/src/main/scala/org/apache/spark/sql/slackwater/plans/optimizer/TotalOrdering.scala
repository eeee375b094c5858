package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project, Window}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.WINDOW
import org.apache.spark.sql.slackwater.plans.expressions.{KeyIssues, OrderedAggregate}
import org.apache.spark.sql.slackwater.values.{Comparable, RowBytes}
import org.apache.spark.sql.types.DataType

/** Window functions that depend on the order of rows which ORDER BY leaves open get an order in which
  * only equal rows are equal: by ORDER BY, then by the other columns that the query needs.
  *
  * Those that see whole peers (RANGE frames, ranks) keep the order that says who is a peer. What they
  * take of the rows in a frame goes by the numbers which these have in the former order.
  */
private[plans] object TotalOrdering extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformUpWithPruning(_.containsPattern(WINDOW)) { case window: Window =>
      val (ofPeers, others) = window.windowExpressions.map(byRows).partition(takesOfPeers)
      if (ofPeers.nonEmpty) numbered(window, ofPeers, others)
      else if (others.exists(isOpen)) settled(window)
      else window
    }

  private def numbered(
      window: Window,
      ofPeers: Seq[NamedExpression],
      others: Seq[NamedExpression]
  ): LogicalPlan = {
    val rest = window.copy(windowExpressions = others)
    val child =
      if (others.isEmpty) window.child else if (others.exists(isOpen)) settled(rest) else rest
    val order = someOrder(window.orderSpec ++ tieBreakers(window))
    val numbers = RowNumbers(child, window.partitionSpec, order)
    val calls = ofPeers.map(byNumber(_, numbers.number))
    Project(window.output, window.copy(windowExpressions = calls, child = numbers.plan))
  }

  private def byNumber(function: NamedExpression, number: Attribute): NamedExpression = function
    .transform { case window: WindowExpression =>
      val called = window.windowFunction match {
        case call @ AggregateExpression(First(value, ignoresNulls), _, _, _, _) if isPlain(value) =>
          call.copy(MinBy(value, if (ignoresNulls) where(value, number) else number))
        case call @ AggregateExpression(Last(value, ignoresNulls), _, _, _, _) if isPlain(value) =>
          call.copy(MaxBy(value, if (ignoresNulls) where(value, number) else number))
        case call: AggregateExpression =>
          call.copy(OrderedAggregate.of(call.aggregateFunction, Seq(number), distinct = false))
        case place: AggregateWindowFunction =>
          OrderedAggregate.of(place, Seq(number), distinct = false).toAggregateExpression()
        case other => other
      }
      window.copy(windowFunction = called)
    }
    .asInstanceOf[NamedExpression]

  private def where(value: Expression, number: Attribute): Expression =
    If(IsNull(value), Literal(null, number.dataType), number)

  /** Texts with a collation Spark's interpreted aggregates do not copy, and maps have several forms. */
  private def isPlain(value: Expression): Boolean =
    RowOrdering.isOrderable(value.dataType) && !Comparable.staysInRow(value.dataType) &&
      !value.dataType.existsRecursively(Comparable.isCollated)

  private def takesOfPeers(function: NamedExpression): Boolean = function.exists {
    case WindowExpression(called, spec) =>
      spec.frameSpecification match {
        case SpecifiedWindowFrame(RangeFrame, _, _) =>
          called match {
            case call: AggregateExpression => !Settled.inWindows(call.aggregateFunction)
            case _: NthValue               => true
            case _                         => false
          }
        case _ => false
      }
    case _ => false
  }

  private def settled(window: Window): LogicalPlan = {
    val (open, closed) = window.windowExpressions.map(byRows).partition(isOpen)
    val order = someOrder(window.orderSpec ++ tieBreakers(window))
    val child = if (closed.isEmpty) window.child else window.copy(windowExpressions = closed)
    val above = window.copy(
      windowExpressions = open.map(ordered(_, order)),
      orderSpec = order,
      child = child
    )
    if (closed.isEmpty) above else Project(window.output, above)
  }

  /** Spark wants an order of rows that are all equal too. */
  private def someOrder(order: Seq[SortOrder]): Seq[SortOrder] =
    if (order.nonEmpty) order else Seq(SortOrder(Literal(0), Ascending))

  private def tieBreakers(window: Window): Seq[SortOrder] = {
    val known = AttributeSet(
      (window.partitionSpec ++ window.orderSpec.map(_.child)).collect { case a: Attribute => a }
    )
    val columns = window.child.output
    val further = columns.filter(a => !known.contains(a) && RowOrdering.isOrderable(a.dataType))
    val looseEnds = columns.filter(a => !settles(a.dataType))
    (further ++ Option.when(looseEnds.nonEmpty)(RowBytes(looseEnds)))
      .map(SortOrder(_, Ascending))
  }

  /** Whether values between which an order does not decide are the same, byte for byte. */
  private def settles(dataType: DataType): Boolean =
    RowOrdering.isOrderable(dataType) && KeyIssues.of(dataType).isEmpty

  private def ordered(function: NamedExpression, order: Seq[SortOrder]): NamedExpression =
    function
      .transform { case spec: WindowSpecDefinition => spec.copy(orderSpec = order) }
      .asInstanceOf[NamedExpression]

  private def isOpen(function: NamedExpression): Boolean = function.exists {
    case WindowExpression(called, spec) =>
      spec.frameSpecification match {
        case SpecifiedWindowFrame(RowFrame, lower, upper) =>
          val whole = lower == UnboundedPreceding && upper == UnboundedFollowing
          called match {
            case _: RankLike | _: CumeDist => false
            case call: AggregateExpression => !whole || !Settled.inWindows(call.aggregateFunction)
            case _                         => true
          }
        case _ => false
      }
    case _ => false
  }

  /** The first row of all up to the last peer is the first row of all up to this one. */
  private def byRows(function: NamedExpression): NamedExpression = function
    .transform {
      case window @ WindowExpression(
            AggregateExpression(First(_, false), _, _, _, _),
            spec @ WindowSpecDefinition(
              _,
              order,
              frame @ SpecifiedWindowFrame(RangeFrame, UnboundedPreceding, CurrentRow)
            )
          ) if order.nonEmpty =>
        val rows = spec.copy(frameSpecification = frame.copy(frameType = RowFrame))
        window.copy(windowSpec = rows)
    }
    .asInstanceOf[NamedExpression]
}
