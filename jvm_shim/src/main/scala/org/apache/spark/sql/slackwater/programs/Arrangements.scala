package org.apache.spark.sql.slackwater.programs

import java.util.concurrent.locks.ReentrantLock

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.slackwater.arrangements.{Arrangement, MemoryBudget}
import org.apache.spark.sql.slackwater.plans.logical.CollectionSlot

/** What an arrangement holds: the rows of a plan over collections, by some of its columns. Equal
  * identities have equal contents, whichever view they were made for.
  *
  * @param environment
  *   whose collections the plan reads: ids of collections begin anew in each environment
  * @param settings
  *   with which expressions mean what they mean
  * @param state
  *   what is kept of the rows, if it is not the rows; what one program alone has is that of no other
  */
private[slackwater] final case class ArrangementIdentity(
    environment: String,
    settings: Map[String, String],
    plan: LogicalPlan,
    keys: Seq[Expression],
    nullSafe: Seq[Boolean],
    columns: Seq[Expression],
    state: Option[AnyRef]
) {

  /** The ids of the collections whose rows it has. */
  def collections: Seq[String] = CollectionSlot.in(plan)
}

/** An arrangement as people see it.
  *
  * @param readers
  *   the ids of the views that share it
  */
private[slackwater] final case class ArrangementSize(
    number: Long,
    collections: Seq[String],
    records: Long,
    bytes: Long,
    readers: Seq[String]
)

/** The arrangements of a replica, by what they hold: the shell of an [[ArrangementRegistry]].
  * Thread-safe.
  *
  * Its lock is held to decide, and never while a job runs, updates are copied or memory is given
  * back. Jobs that load run in the thread of the reader that was told to load, and end as that thread
  * is interrupted; so does a reader that waits for another one's.
  *
  * @param budget
  *   what they take together
  * @param scanned
  *   what ticks take together that read by jobs what no arrangement keeps
  */
private[slackwater] final class Arrangements(val budget: MemoryBudget, val scanned: MemoryBudget) {
  import ArrangementRegistry._

  /** What programs compute in common. */
  val updates = new SharedUpdates

  private val registry = new ArrangementRegistry[ArrangementIdentity]
  private val held = mutable.LongMap.empty[SharedArrangement]
  private val owners = mutable.LongMap.empty[String]
  private val lock = new ReentrantLock
  private val mayGoOn = lock.newCondition()

  /** A reader for the view with the id `owner`, which begins at `asOf`; it is to `leave`. */
  def register(identity: ArrangementIdentity, owner: String, asOf: Long): Long = locked {
    val reader = registry.register(identity, asOf)
    owners.put(reader, owner)
    reader
  }

  /** The reader's arrangement, loaded. It may be behind where the reader begins.
    *
    * Throws what `load` throws, and InterruptedException; another reader loads then, if one waits.
    *
    * @param check
    *   throws if the reader is not wanted any more; asked again after `wake`
    * @param load
    *   makes the arrangement with the contents at a time
    */
  def hydrated(reader: Long, check: () => Unit)(load: Long => Arrangement): SharedArrangement =
    awaited(reader, check) match {
      case Load(number, asOf) =>
        val made =
          try load(asOf)
          catch {
            case error: Throwable =>
              decide(registry.failed(number))
              throw error
          }
        decide {
          held.put(number, new SharedArrangement(made))
          registry.loaded(number)
        }
        hydrated(reader, check)(load)
      case _ => locked(held(registry.arrangementOf(reader)))
    }

  private def awaited(reader: Long, check: () => Unit): Next = {
    lock.lockInterruptibly()
    try {
      check()
      var next = registry.next(reader)
      while (next == Wait) {
        mayGoOn.await()
        check()
        next = registry.next(reader)
      }
      next
    } finally lock.unlock()
  }

  /** Readers that wait ask whether they are still wanted. */
  def wake(): Unit = locked(mayGoOn.signalAll())

  /** The reader's arrangement has all updates before `upper`. */
  def advanced(reader: Long, upper: Long): Unit = decide(registry.advanced(reader, upper))

  /** The reader will not ask for times before `from` again. */
  def reads(reader: Long, from: Long): Unit = decide(registry.reads(reader, from))

  /** The arrangement from which the reader goes on, which has brought all updates before `reached`; see
    * `ArrangementRegistry.unite`.
    */
  def united(reader: Long, reached: Long): SharedArrangement = {
    decide(registry.unite(reader, reached))
    locked(held(registry.arrangementOf(reader)))
  }

  /** The reader gets another arrangement; see `ArrangementRegistry.renew`. */
  def renew(reader: Long): Unit = decide(registry.renew(reader))

  /** Runs `body` while the contents at `asOf` stay of what `reader` has; None: they are not there. Any
    * thread may ask.
    */
  def reading[A](reader: Long, asOf: Long)(body: Arrangement => A): Option[A] = {
    val pinned = locked(registry.pin(reader, asOf).map { each =>
      owners.put(each, owners(reader))
      (each, held(registry.arrangementOf(each)))
    })
    pinned.map { case (each, shared) =>
      try body(shared.arrangement)
      finally leave(each)
    }
  }

  /** Whether some arrangements have the same rows. */
  def areApart: Boolean = locked(registry.isApart)

  def leave(reader: Long): Unit = decide {
    owners.remove(reader)
    registry.leave(reader)
  }

  /** Those that are loaded. */
  def sizes(environment: String): Seq[ArrangementSize] = {
    val loaded = locked(registry.all.collect {
      case entry if entry.identity.environment == environment && held.contains(entry.number) =>
        (entry, held(entry.number), entry.readers.keys.map(owners(_)).toSeq.distinct.sorted)
    })
    loaded.map { case (entry, shared, readers) =>
      val made = shared.arrangement
      ArrangementSize(entry.number, entry.identity.collections, made.rows, made.bytes, readers)
    }
  }

  /** Throws IllegalStateException when what it holds contradicts itself. */
  def validate(): Unit = locked {
    registry.validate()
    val loaded = registry.all.filter(_.phase.isInstanceOf[ArrangementPhase.Loaded]).map(_.number)
    if (loaded.toSet != held.keySet) throw new IllegalStateException(s"$loaded are not $held")
  }

  private def locked[A](body: => A): A = {
    lock.lock()
    try body
    finally lock.unlock()
  }

  /** Decides with the lock, and acts without it. */
  private def decide(effects: => Seq[Effect]): Unit = {
    val actions = locked(effects.flatMap(actionOf))
    actions.foreach(_())
  }

  private def actionOf(effect: Effect): Option[() => Unit] = effect match {
    case LookAgain =>
      mayGoOn.signalAll()
      None
    case Compact(number, since) =>
      val shared = held(number)
      Some(() => shared.compact(since))
    case Close(number) =>
      val shared = held.remove(number).get
      Some(() => shared.close())
  }
}
