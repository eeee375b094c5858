package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.arrangements.{Arrangement, Batch, CountSink, Sink}

/** A program's part in an arrangement that others may share. Calls come one after the other, but for
  * `cancel`.
  *
  * @param number
  *   of the reader, as `arrangements` has it
  * @param make
  *   an empty arrangement
  * @param contents
  *   makes its contents
  */
private[slackwater] final class ArrangementReader(
    arrangements: Arrangements,
    number: Long,
    make: () => Arrangement,
    contents: Before => Contents
) extends Index
    with OperatorState {
  private var shared: SharedArrangement = _

  /** All updates before it are there: those from it on this program brings, unless others do. */
  private var bringsFrom = 0L
  @volatile private var isCancelled = false

  private def arrangement: Arrangement =
    Option(shared).getOrElse(throw new IllegalStateException("it is not loaded")).arrangement

  /** As `Arrangements.reading` has it, of this program's arrangement. */
  def reading[A](asOf: Long)(body: Arrangement => A): Option[A] =
    arrangements.reading(number, asOf)(body)

  override def mode: String = "indexed"
  override def rows: Long = Option(shared).fold(0L)(_.arrangement.rows)
  override def keys: Long = Option(shared).fold(0L)(_.arrangement.keys)
  override def upper: Long = arrangement.upper

  override def want(tick: TickContext)(keys: (UnsafeRow => Unit) => Unit): Unit = ()

  override def lookup(key: UnsafeRow, below: Long, sink: Sink): Unit =
    arrangement.lookup(key, below, sink)

  override def count(key: UnsafeRow, below: Long, sink: CountSink): Unit =
    arrangement.count(key, below, sink)

  override def advance(tick: TickContext)(updates: Long => Batch): Unit =
    advanceTo(tick.upper)(updates)

  /** Another program may have done it already. */
  private def advanceTo(upper: Long)(updates: Long => Batch): Unit = {
    arrangements.advanced(number, shared.advance(upper)(updates))
    bringsFrom = math.max(bringsFrom, upper)
  }

  /** Loads it, or waits until another program has loaded it, which may be with earlier contents. */
  override def fill(session: SparkSession, inputs: Inputs, asOf: Long): Unit =
    if (shared == null) {
      shared = arrangements.hydrated(number, () => check()) { from =>
        if (from != asOf) throw new IllegalStateException(s"$from is wanted, and $asOf is there")
        val found = contents(Before(session, inputs))
        try loaded(found, asOf)
        finally found.close()
      }
      bringsFrom = math.min(shared.arrangement.upper, asOf + 1)
    }

  private def loaded(found: Contents, asOf: Long): Arrangement = {
    val made = make()
    try made.load(checked(found.rows), asOf, found.rangeBits)
    catch {
      case error: Throwable =>
        made.close()
        throw error
    }
    made
  }

  /** It is behind where this program begins, and is to be loaded anew. */
  def renew(): Unit = {
    shared = null
    arrangements.renew(number)
  }

  override def reached(upper: Long): Unit = advanceTo(upper)(_ => new Batch)

  override def committed(upper: Long): Unit = {
    arrangements.reads(number, upper - 1)
    unite()
    shared.maintain()
  }

  /** Nothing has changed before `upper` beyond what this program has brought. */
  def advanced(upper: Long): Unit = {
    unite()
    arrangements.advanced(number, shared.advance(upper)(_ => new Batch))
  }

  /** Goes on from the arrangement of other programs, if that has the same rows and begins earlier. */
  private def unite(): Unit = shared = arrangements.united(number, bringsFrom)

  override def nextChange(from: Long): Long = Long.MaxValue

  override def cancel(): Unit = {
    isCancelled = true
    arrangements.wake()
  }

  override def close(): Unit = arrangements.leave(number)

  private def check(): Unit =
    if (isCancelled) throw new IllegalStateException("the program is closed")

  /** A job may have ended when it is cancelled, and its rows still be on their way. */
  private def checked[A](found: Iterator[A]): Iterator[A] = {
    var count = 0
    found.map { row =>
      count += 1
      if (count % ArrangementReader.RowsUnseen == 0) {
        if (Thread.interrupted()) throw new InterruptedException
        check()
      }
      row
    }
  }
}

private[programs] object ArrangementReader {
  val RowsUnseen = 1024
}
