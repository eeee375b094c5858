package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.slackwater.arrangements.Batch

/** How rows become entries of an arrangement.
  *
  * @param nullSafe
  *   for each key whether NULL equals NULL; a row with NULL in another key is equal to nothing, and
  *   is not kept
  */
private[slackwater] final class Keyed(
    keys: Evaluation,
    nullSafe: IndexedSeq[Boolean],
    columns: Evaluation
) {

  /** The key of a row, valid until the next call; None: it equals no key. */
  def key(row: InternalRow): Option[UnsafeRow] = {
    val found = keys(row)
    if (Keyed.matches(found, nullSafe)) Some(found) else None
  }

  def value(row: InternalRow): UnsafeRow = columns(row)
}

private[slackwater] object Keyed {
  def matches(key: UnsafeRow, nullSafe: IndexedSeq[Boolean]): Boolean = {
    var i = 0
    while (i < nullSafe.length && (nullSafe(i) || !key.isNullAt(i))) i += 1
    i == nullSafe.length
  }
}

/** An index of a program, which moves on with the updates that an operator has emitted.
  *
  * It may be ahead of the tick: another program that shares it was faster, or the tick before was
  * computed and not committed. The times of a lookup say what it sees.
  */
private[slackwater] final class Arranged(
    index: Index,
    val delta: Int,
    entry: Keyed,
    seen: SeenRows = SeenRows.all
) {

  /** Of one that programs share. */
  val reader: Option[ArrangementReader] = index match {
    case shared: ArrangementReader => Some(shared)
    case _                         => None
  }

  def mode: String = index.mode

  def rows: Long = index.rows
  def keys: Long = index.keys

  /** Takes the updates that it does not have yet. */
  def advance(tick: TickContext): Unit = index.advance(tick) { from =>
    val batch = new Batch
    tick(delta).foreach { (row, time, diff) =>
      if (time >= from)
        entry.key(row).foreach(key => batch.add(key, entry.value(row), time, diff))
    }
    batch
  }

  /** See `Index.want`. */
  def want(tick: TickContext)(keys: (UnsafeRow => Unit) => Unit): Unit = index.want(tick)(keys)

  /** Every update of the key with a time below `below`: what is seen of its arranged columns, valid
    * during the call, time and diff.
    */
  def lookup(key: UnsafeRow, below: Long, metrics: OperatorMetrics)(
      visit: (UnsafeRow, Long, Long) => Unit
  ): Unit =
    index.lookup(
      key,
      below,
      (row, time, diff) => {
        metrics.found()
        val shown = seen(row)
        if (shown != null) visit(shown, time, diff)
      }
    )

  /** How often what is seen of the key is there: at which times before `below` how many rows came, or
    * went. Rows are looked at only where some are not seen.
    */
  def count(key: UnsafeRow, below: Long, metrics: OperatorMetrics)(
      visit: (Long, Long) => Unit
  ): Unit =
    if (seen.areAll)
      index.count(
        key,
        below,
        (time, diff) => {
          metrics.found()
          visit(time, diff)
        }
      )
    else lookup(key, below, metrics)((_, time, diff) => visit(time, diff))
}
