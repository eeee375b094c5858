package org.apache.spark.sql.slackwater.programs

import scala.collection.mutable

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  Expression,
  InterpretedUnsafeProjection,
  Predicate,
  UnsafeProjection,
  UnsafeRow
}
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.catalyst.plans.logical.{Filter, LogicalPlan}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.arrangements.{
  Arrangement,
  ArrangementTooLarge,
  Batch,
  CountSink,
  MemoryBudget,
  Sink
}

/** The collections as they were just before a tick. */
private[slackwater] final case class Before(session: SparkSession, inputs: Inputs)

/** The keys that a tick looks up. Not to be changed once rows are read by them. */
private[slackwater] final class WantedKeys extends Serializable {
  private val keys = new java.util.HashSet[UnsafeRow]

  def isEmpty: Boolean = keys.isEmpty
  def contains(key: UnsafeRow): Boolean = keys.contains(key)
  def add(key: UnsafeRow): Unit = { val _ = keys.add(key) }

  /** The rows of `plan` whose keys these are; `of` says which key a row has. */
  def filtered(plan: LogicalPlan, of: Seq[Expression]): LogicalPlan =
    Filter(IsWanted(of, this), plan)

  override def toString: String = s"${keys.size} keys"
}

/** Whether a row has a key that is wanted. */
private[programs] final case class IsWanted(children: Seq[Expression], keys: WantedKeys)
    extends Predicate
    with CodegenFallback {
  @transient private lazy val key: UnsafeProjection =
    InterpretedUnsafeProjection.createProjection(children)

  override def nullable: Boolean = false
  override def stateful: Boolean = true
  override def eval(row: InternalRow): Boolean = keys.contains(key(row))

  override protected def withNewChildrenInternal(made: IndexedSeq[Expression]): IsWanted =
    copy(children = made)
}

/** An index for which there is no room: each tick reads what the keys have that it looks up, by a job
  * over the collections, and keeps it no longer than it takes.
  *
  * @param budget
  *   of all ticks that run at the same time; one that does not fit into it ends as too large
  * @param read
  *   keys, rows and multiplicities of those keys that are wanted
  */
private[slackwater] final class ScannedIndex(
    keyFields: Int,
    rowFields: Int,
    name: String,
    budget: MemoryBudget
)(
    read: (Before, WantedKeys) => Contents
) extends Index
    with OperatorState {
  override def rows: Long = 0
  override def keys: Long = 0

  private var current: TickContext = _
  private val known = mutable.ArrayBuffer.empty[WantedKeys]

  // The first takes what changes in the tick; each other one has what was read for some keys.
  private val held = mutable.ArrayBuffer.empty[Arrangement]

  override def mode: String = "scanned"
  override def upper: Long = held.head.upper

  override def want(tick: TickContext)(keys: (UnsafeRow => Unit) => Unit): Unit = {
    begin(tick)
    val wanted = new WantedKeys
    keys { key =>
      if (!wanted.contains(key) && !known.exists(_.contains(key))) {
        tick.budget.take(key.getSizeInBytes + ScannedIndex.BesideKey)
        wanted.add(key.copy())
      }
    }
    if (!wanted.isEmpty) {
      val found = read(tick.before.get, wanted)
      try load(tick, found)
      finally found.close()
      known += wanted
    }
  }

  override def lookup(key: UnsafeRow, below: Long, sink: Sink): Unit =
    held.foreach(_.lookup(key, below, sink))

  override def count(key: UnsafeRow, below: Long, sink: CountSink): Unit =
    held.foreach(_.count(key, below, sink))

  override def advance(tick: TickContext)(updates: Long => Batch): Unit = {
    begin(tick)
    orTooLarge(held.head.append(updates(held.head.upper), tick.upper))
  }

  private def begin(tick: TickContext): Unit = if (current ne tick) {
    close()
    current = tick
    load(tick, Contents.of(Iterator.empty))
  }

  private def load(tick: TickContext, found: Contents): Unit = {
    val made = new Arrangement(keyFields, rowFields, budget, name)
    held += made
    orTooLarge(made.load(found.rows, tick.lower - 1, found.rangeBits))
  }

  private def orTooLarge[A](body: => A): A =
    try body
    catch { case _: ArrangementTooLarge => throw new TickEnded("large") }

  override def fill(session: SparkSession, inputs: Inputs, asOf: Long): Unit = ()
  override def reached(upper: Long): Unit = close()
  override def committed(upper: Long): Unit = ()
  override def nextChange(from: Long): Long = Long.MaxValue

  override def close(): Unit = {
    current = null
    held.foreach(_.close())
    held.clear()
    known.clear()
  }
}

private object ScannedIndex {

  /** Where a key is held. */
  val BesideKey = 64L
}
