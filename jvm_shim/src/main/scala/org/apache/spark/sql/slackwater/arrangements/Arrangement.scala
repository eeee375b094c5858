package org.apache.spark.sql.slackwater.arrangements

import java.util.concurrent.locks.ReentrantReadWriteLock

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/** Receives what a lookup finds. `row` is only valid during the call. `time` in ms. */
trait Sink {
  def take(row: UnsafeRow, time: Long, diff: Long): Unit
}

/** Receives how many rows a key has: at which `time` (ms) how many came, or went. */
trait CountSink {
  def take(time: Long, diff: Long): Unit
}

/** Receives what a scan finds. `key` and `row` are only valid during the call. `time` in ms. */
trait KeyedSink {
  def take(key: UnsafeRow, row: UnsafeRow, time: Long, diff: Long): Unit
}

/** The updates of a collection by key, in memory, for times from since until upper.
  *
  * Keys and rows are canonical: equal ones have equal bytes. docs/internals/arrangements.md says how
  * they are stored.
  *
  * Any number of threads may look up and scan. Writers (all other methods) take turns, and readers
  * wait only while a batch is copied in or a segment is exchanged for its successor. A sink may look
  * up and scan, in this arrangement too; it must not write to any arrangement.
  *
  * Before [[load]], it is complete for no time, and empty from time 0 on.
  *
  * @param keyFields
  *   how many fields a key has, which may be none
  * @param name
  *   who is named when the budget does not suffice
  */
final class Arrangement private[arrangements] (
    keyFields: Int,
    rowFields: Int,
    budget: MemoryBudget,
    name: String,
    shape: Shape
) {
  def this(keyFields: Int, rowFields: Int, budget: MemoryBudget, name: String) =
    this(keyFields, rowFields, budget, name, Shape())

  private val memory = new Allotment(budget, name)
  private val layout = new Layout(keyFields, rowFields, shape)
  private val lock = new ReentrantReadWriteLock
  private val readers = ThreadLocal.withInitial[Reader](() => new Reader(layout))

  // Changed by the writer, under the write lock.
  private var segments = new Segments(memory)
  private var closed = false
  @volatile private var complete = Times(0, 0)
  @volatile private var count = 0L

  // The hash at which maintenance goes on.
  private var maintained = 0L

  private case class Times(since: Long, upper: Long)

  /** Times before it, in ms, cannot be told apart from it. */
  def since: Long = complete.since

  /** Updates before it, in ms, are all there. */
  def upper: Long = complete.upper

  /** Stored updates. */
  def rows: Long = count

  /** About how many keys they have: one counts twice from its next update on until it is folded. */
  def keys: Long = {
    lock.readLock.lock()
    try sumOf(_.keys)
    finally lock.readLock.unlock()
  }

  /** Memory outside the heap that this arrangement has of the budget. */
  def bytes: Long = memory.bytes

  /** Reads the initial contents, with their multiplicities, as of `asOf` (ms). They come in the order
    * of the first `rangeBits` bits of the hashes of their keys, as `Arrangement.hash` has them: the
    * more bits, the fewer rows are held unpacked. 0: in no order.
    *
    * Readers go on with an empty arrangement meanwhile. Throws [[ArrangementTooLarge]], and is then as
    * empty as before.
    */
  def load(
      rows: Iterator[(UnsafeRow, UnsafeRow, Long)],
      asOf: Long,
      rangeBits: Int = 0
  ): Unit = writing {
    if (complete != Times(0, 0)) throw new IllegalStateException(s"$name was loaded already")
    val loaded = new Segments(memory)
    val loading = new Loading(loaded, asOf, layout, memory, rangeBits)
    try {
      while (rows.hasNext) {
        val (key, row, diff) = rows.next()
        loading.add(key, row, diff)
      }
      loading.finish()
    } catch {
      case failure: Throwable =>
        loaded.close()
        throw failure
    }
    exclusively {
      segments = loaded
      complete = Times(asOf, asOf + 1)
      count = sumOf(_.rows)
    }
  }

  /** Adds all updates with times in `[upper, newUpper)`, or nothing.
    *
    * Throws [[ArrangementTooLarge]]; IllegalArgumentException if a time is outside the interval.
    */
  def append(batch: Batch, newUpper: Long): Unit = writing {
    val from = upper
    val fits = batch.size == 0 || (batch.firstTime >= from && batch.lastTime < newUpper)
    if (newUpper < from || !fits)
      throw new IllegalArgumentException(
        s"updates from ${batch.firstTime} to ${batch.lastTime} are not all in [$from, $newUpper)"
      )
    exclusively {
      makeRoom(batch)
      for (i <- 0 until batch.size) {
        val hash = layout.hashOf(batch.chunk(i), batch.offset(i))
        segments.of(hash).overlay.add(batch.chunk(i), batch.offset(i), hash)
      }
      count += batch.size
      complete = complete.copy(upper = newUpper)
    }
  }

  /** After this nothing can fail. */
  private def makeRoom(batch: Batch): Unit = {
    val touched = scala.collection.mutable.ArrayBuffer.empty[Overlay]
    for (i <- 0 until batch.size) {
      val hash = layout.hashOf(batch.chunk(i), batch.offset(i))
      val overlay = segments.of(hash).overlay
      if (overlay.expect(Update.bytes(batch.chunk(i), batch.offset(i)))) touched += overlay
    }
    try touched.foreach(_.makeRoom())
    finally touched.foreach(_.expectNothing())
  }

  /** Gives each update of `key` before `below` (ms) to `sink`, in no order.
    *
    * Times up to since are reported as since, and there each row comes once, with the sum of its
    * multiplicities, or not at all where that is 0. Later updates come as they were appended.
    *
    * Throws IllegalArgumentException if `below` is not after since: that is no longer known.
    */
  def lookup(key: UnsafeRow, below: Long, sink: Sink): Unit = {
    val hash = layout.hash(key)
    reading(below) { since =>
      readers.get.idle.read(
        segments.of(hash),
        hash,
        key.getBaseObject,
        key.getBaseOffset,
        key.getSizeInBytes,
        since,
        below,
        sink
      )
    }
  }

  /** Gives the multiplicities of the updates of `key` before `below` (ms) to `sink`, in no order: one
    * sum for all times up to since, if it is not 0, and each later update by itself.
    *
    * Rows that exist once cost nothing each. Throws as [[lookup]] does.
    */
  def count(key: UnsafeRow, below: Long, sink: CountSink): Unit = {
    val hash = layout.hash(key)
    reading(below) { since =>
      readers.get.idle.count(
        segments.of(hash),
        hash,
        key.getBaseObject,
        key.getBaseOffset,
        key.getSizeInBytes,
        since,
        below,
        sink
      )
    }
  }

  /** Gives each update before `below` (ms) to `sink`, as [[lookup]] does, key by key, in no order.
    *
    * Others may append and compact meanwhile. Appended updates are seen if they are before `below`.
    * Throws IllegalArgumentException if since passes `below`, which the caller has to prevent.
    */
  def scan(below: Long, sink: KeyedSink): Unit = {
    var hash = 0L
    while (hash < Segments.End)
      reading(below) { since =>
        val segment = segments.of(hash.toInt)
        readers.get.idle.readAll(segment, since, below, sink)
        hash = segments.after(hash)
      }
  }

  /** Lets times up to `since` (ms) become one. An earlier since than the present one does nothing.
    *
    * Throws IllegalArgumentException if no complete time would be left.
    */
  def allowCompaction(since: Long): Unit = writing {
    if (since > complete.since) {
      if (since >= upper)
        throw new IllegalArgumentException(s"since $since would not be before upper $upper")
      exclusively { complete = complete.copy(since = since) }
    }
  }

  /** Merges segments that are due, until `budgetRows` updates were read for it, and says whether
    * more are due. The unit is a segment, so that a key with very many rows exceeds the budget.
    *
    * Throws [[ArrangementTooLarge]]: a segment and its successor are both in memory for a moment.
    */
  def maintain(budgetRows: Int): Boolean = writing {
    var left = budgetRows.toLong
    var seen = 0L
    var more = false
    while (seen < Segments.End && !more) {
      val next = segments.after(maintained)
      val segment = segments.of(maintained.toInt)
      if (segment.isDue(since, shape)) {
        if (left > 0) {
          left -= segment.rows
          merge(segment, maintained.toInt)
        } else more = true
      }
      if (!more) {
        seen += next - maintained
        maintained = if (next == Segments.End) 0 else next
      }
    }
    more
  }

  private def merge(segment: Segment, hash: Int): Unit = {
    val parts = new SegmentMerge(segment, since, layout, memory).segments()
    exclusively {
      count += parts.iterator.map(_.rows).sum - segment.rows
      segments.replace(hash, parts)
    }
  }

  /** Gives all memory back. Whoever reads or writes afterwards gets an IllegalStateException. */
  def close(): Unit = takingTurns {
    if (!closed) exclusively {
      closed = true
      count = 0
      segments.close()
    }
  }

  private def sumOf(each: Segment => Long): Long = {
    var sum = 0L
    segments.foreach(sum += each(_))
    sum
  }

  private def writing[A](body: => A): A = takingTurns {
    requireOpen()
    body
  }

  private def takingTurns[A](body: => A): A = {
    // It would wait for itself.
    if (lock.getReadHoldCount > 0) throw new IllegalStateException(s"a sink writes to $name")
    synchronized(body)
  }

  private def exclusively(body: => Unit): Unit = {
    lock.writeLock.lock()
    try body
    finally lock.writeLock.unlock()
  }

  private def reading(below: Long)(body: Long => Unit): Unit = {
    lock.readLock.lock()
    try {
      requireOpen()
      val Times(since, upper) = complete
      if (below <= since && since < upper)
        throw new IllegalArgumentException(s"$name is not known before $below, its since is $since")
      body(since)
    } finally lock.readLock.unlock()
  }

  private def requireOpen(): Unit =
    if (closed) throw new IllegalStateException(s"$name is closed")
}

object Arrangement {

  /** By whose first bits keys are placed. */
  def hash(key: UnsafeRow): Int = Update.hash(key)
}
