package org.apache.spark.sql.slackwater.programs

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.{Expression, UnsafeRow}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.slackwater.arrangements.{Arrangement, Batch, MemoryBudget, Sink}

/** What an arrangement holds: the rows of a plan over collections, by some of its columns. Equal
  * identities have equal contents, whichever view they were made for.
  *
  * @param environment
  *   whose collections the plan reads: ids of collections begin anew in each environment
  * @param settings
  *   with which expressions mean what they mean
  * @param state
  *   which program alone it belongs to, if it is not of that kind
  */
private[slackwater] final case class ArrangementIdentity(
    environment: String,
    settings: String,
    plan: LogicalPlan,
    keys: Seq[Expression],
    nullSafe: Seq[Boolean],
    columns: Seq[Expression],
    state: Option[AnyRef]
)

/** An arrangement that programs share. Each says from which time on it still reads. Thread-safe. */
private[slackwater] final class SharedArrangement(
    val identity: ArrangementIdentity,
    val name: String,
    make: () => Arrangement
) extends Index {
  private val readers = mutable.HashMap.empty[AnyRef, Long]
  private var held: Arrangement = _

  def arrangement: Arrangement = synchronized {
    if (held == null) throw new IllegalStateException(s"$name is not loaded")
    held
  }

  /** Whether a reader that begins at `asOf` finds there what it needs, now or once it is loaded. */
  def covers(asOf: Long): Boolean = synchronized {
    held == null || (held.since <= asOf && asOf < held.upper)
  }

  /** Loads it once; the iterator is not asked for if somebody else was faster. */
  def load(asOf: Long)(rows: => Iterator[(UnsafeRow, UnsafeRow, Long)]): Unit = synchronized {
    if (held == null) {
      val made = make()
      try made.load(rows, asOf)
      catch {
        case error: Throwable =>
          made.close()
          throw error
      }
      held = made
    }
  }

  override def mode: String = "indexed"
  override def upper: Long = arrangement.upper
  override def want(tick: TickContext)(keys: (UnsafeRow => Unit) => Unit): Unit = ()

  override def lookup(key: UnsafeRow, below: Long, sink: Sink): Unit =
    arrangement.lookup(key, below, sink)

  override def advance(tick: TickContext)(updates: Long => Batch): Unit =
    advanceTo(tick.upper)(updates)

  /** Another program may have done it already. */
  def advanceTo(upper: Long)(updates: Long => Batch): Unit = synchronized {
    if (arrangement.upper < upper) arrangement.append(updates(arrangement.upper), upper)
  }

  /** The reader will not ask for times before `since` again. */
  def needs(reader: AnyRef, since: Long): Unit = synchronized {
    readers.put(reader, since)
    if (held != null) {
      held.allowCompaction(readers.values.min)
      held.maintain(SharedArrangement.rowsPerTick)
    }
  }

  /** Keeps the contents at `asOf` for the reader, until it leaves; false: they are not there. */
  def pin(reader: AnyRef, asOf: Long): Boolean = synchronized {
    val isThere = held != null && held.since <= asOf
    if (isThere) readers.put(reader, asOf)
    isThere
  }

  /** Whether nobody reads it any more. */
  def leave(reader: AnyRef): Boolean = synchronized {
    readers.remove(reader)
    if (readers.isEmpty && held != null) {
      held.close()
      held = null
    }
    readers.isEmpty
  }

  override def rows: Long = synchronized(if (held == null) 0L else held.rows)
  override def keys: Long = synchronized(if (held == null) 0L else held.keys)
  def bytes: Long = synchronized(if (held == null) 0L else held.bytes)
}

private[slackwater] object SharedArrangement {

  /** So many rows are moved in one tick for tidiness' sake. */
  val rowsPerTick = 65536
}

/** The arrangements of a replica, by what they hold. Thread-safe.
  *
  * @param budget
  *   what they take together
  * @param scanned
  *   what ticks take together that read by jobs what no arrangement keeps
  */
private[slackwater] final class Arrangements(val budget: MemoryBudget, val scanned: MemoryBudget) {
  private val known = mutable.HashMap.empty[ArrangementIdentity, SharedArrangement]

  /** For a reader that begins at `asOf`; it is to `leave` each that it asked for.
    *
    * One that others have and that does not reach from before that time to after it stays theirs.
    */
  def of(identity: ArrangementIdentity, name: String, reader: AnyRef, asOf: Long)(
      make: () => Arrangement
  ): SharedArrangement = synchronized {
    val shared = known.get(identity).filter(_.covers(asOf))
    val found = shared.getOrElse {
      val own = if (known.contains(identity)) identity.copy(state = Some(reader)) else identity
      known.getOrElseUpdate(own, new SharedArrangement(own, name, make))
    }
    found.needs(reader, asOf)
    found
  }

  def leave(arrangement: SharedArrangement, reader: AnyRef): Unit = synchronized {
    if (arrangement.leave(reader)) known.remove(arrangement.identity)
  }

  def all: Seq[SharedArrangement] = synchronized(known.values.toSeq)
}
