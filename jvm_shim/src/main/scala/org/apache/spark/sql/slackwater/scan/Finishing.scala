package org.apache.spark.sql.slackwater.scan

import scala.collection.mutable
import scala.util.control.ControlThrowable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.planning.PhysicalOperation
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.slackwater.scan.logical.{Indexed, IndexedView}

/** What a statement makes of all rows of a relation, as far as that leaves rows out.
  *
  * @param conditions
  *   which hold for the rows that are wanted
  * @param limit
  *   so many of these are enough, the first ones in `order`; None: all of them are wanted
  * @param mostUpdates
  *   where an index has more, it is not gone through for them
  */
private[slackwater] final case class Finishing(
    conditions: Seq[Expression],
    order: Seq[SortOrder],
    limit: Option[Int],
    mostUpdates: Int
) {

  /** The same over other attributes, or over columns by their places. */
  def over(columns: Map[ExprId, Expression]): Finishing = {
    def bound[A <: Expression](e: A): A = e
      .transform { case a: Attribute => columns.getOrElse(a.exprId, a) }
      .asInstanceOf[A]
    copy(conditions = conditions.map(bound), order = order.map(bound))
  }
}

private[slackwater] object Finishing {

  /** So many updates are gone through while a statement is planned. */
  private val mostUpdates = 1000000

  /** Few enough to be looked at before an index below the view is. */
  private val fewUpdates = IndexScan.mostRows

  private[scan] val everything = Finishing(Nil, Nil, None, fewUpdates)

  /** A part of a plan that reads a view which has indexes, the view, and what the part makes of it. */
  def unapply(plan: LogicalPlan): Option[(IndexedView, Finishing)] = plan match {
    case Limit(IntegerLiteral(most), Sorted(order, rows)) => of(rows, order, Some(most))
    case Limit(IntegerLiteral(most), rows)                => of(rows, Nil, Some(most))
    case rows                                             => of(rows, Nil, None)
  }

  private def of(
      plan: LogicalPlan,
      order: Seq[SortOrder],
      limit: Option[Int]
  ): Option[(IndexedView, Finishing)] = plan match {
    case PhysicalOperation(columns, conditions, view: IndexedView) =>
      val (known, other) = conditions.partition(!SubqueryExpression.hasSubquery(_))
      val made = columns.collect { case a: Alias => a.exprId -> a.child }.toMap
      val sorted = everything.copy(order = order).over(made).order
      val updates = if (view.child.exists(isIndexed)) fewUpdates else mostUpdates
      Some(view -> Finishing(known, sorted, limit.filter(_ => other.isEmpty), updates))
    case _ => None
  }

  private def isIndexed(plan: LogicalPlan): Boolean = plan match {
    case relation: Indexed => relation.isIndexed
    case _                 => false
  }

  /** Rows in the order of a sort, some columns of them. */
  private object Sorted {
    def unapply(plan: LogicalPlan): Option[(Seq[SortOrder], LogicalPlan)] = plan match {
      case sort: Sort if sort.global => Some(sort.order -> sort.child)
      case Project(columns, sort: Sort) if sort.global && columns.forall(_.deterministic) =>
        Some(sort.order -> sort.child)
      case _ => None
    }
  }
}

/** Takes the updates of an index key by key, and keeps the rows that are wanted, each with how often
  * it is there. Expressions of `wanted` are over the columns of the index, by their places.
  *
  * Ends the scan by [[RowSums.TooMany]] where there are more than `most`, or too many bytes of them,
  * and by [[WantedRows.Enough]] where no other row can be among those that are wanted.
  */
private[slackwater] final class WantedRows(wanted: Finishing, most: Int) extends KeyedUpdates {
  private val holds = wanted.conditions.reduceOption(And(_, _)).map(Predicate.createInterpreted)
  private val ordering = new InterpretedOrdering(wanted.order)
  private val ofKey = mutable.LinkedHashMap.empty[UnsafeRow, Long]

  /** The last one in the order comes first. */
  private val kept =
    mutable.PriorityQueue.empty[(UnsafeRow, Long)]((a: (UnsafeRow, Long), b: (UnsafeRow, Long)) =>
      ordering.compare(a._1, b._1)
    )
  private var count = 0L
  private var bytes = 0L

  override def add(row: UnsafeRow, diff: Long): Unit =
    if (holds.forall(_.eval(row))) ofKey.get(row) match {
      case Some(sum) => ofKey.update(row, sum + diff)
      case None      => ofKey.update(row.copy(), diff)
    }

  override def endKey(): Unit = if (ofKey.nonEmpty) {
    ofKey.foreach { case (row, sum) => if (sum != 0) keep(row, sum) }
    ofKey.clear()
  }

  private def keep(row: UnsafeRow, sum: Long): Unit = {
    kept += row -> sum
    account(row, sum)
    wanted.limit.foreach { limit =>
      if (wanted.order.isEmpty && count >= limit) throw WantedRows.Enough
      while (kept.nonEmpty && count - kept.head._2 >= limit) {
        val (last, times) = kept.dequeue()
        account(last, -times)
      }
    }
    if (count > most || bytes > WantedRows.mostBytes) throw RowSums.TooMany
  }

  private def account(row: UnsafeRow, times: Long): Unit = {
    count += times
    bytes += times * row.getSizeInBytes
  }

  def rows: Seq[(UnsafeRow, Long)] = kept.toSeq
}

private[scan] object WantedRows {
  object Enough extends ControlThrowable

  /** So many bytes are taken out of an index for one statement. */
  val mostBytes: Long = 16L << 20
}
