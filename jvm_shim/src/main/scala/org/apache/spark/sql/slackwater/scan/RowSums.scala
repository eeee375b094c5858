package org.apache.spark.sql.slackwater.scan

import scala.collection.mutable
import scala.util.control.ControlThrowable

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/** Rows, each as often as its diffs sum up to. At most `most` of them. */
private[scan] final class RowSums private (most: Int) {
  private val sums = mutable.LinkedHashMap.empty[UnsafeRow, Long]

  def add(row: UnsafeRow, diff: Long): Unit = {
    if (sums.size >= most) throw RowSums.TooMany
    sums.get(row) match {
      case Some(known) => sums.update(row, known + diff)
      case None        => sums.update(row.copy(), diff)
    }
  }

  def all: Seq[(UnsafeRow, Long)] = sums.toSeq.filter(_._2 != 0)

  def rows: Seq[UnsafeRow] = {
    if (sums.valuesIterator.map(math.max(0L, _)).sum > most) throw RowSums.TooMany
    Consolidate.repeated(sums.iterator.map { case (row, sum) => InlineUpdate(row, 0L, sum) }.toSeq)
  }
}

private[scan] object RowSums {

  /** There are more rows than are wanted. */
  object TooMany extends ControlThrowable

  /** What `body` makes of sums; None: they have more than `most` rows. */
  def within[A](most: Int)(body: RowSums => A): Option[A] =
    try Some(body(new RowSums(most)))
    catch { case TooMany => None }
}
