package org.apache.spark.sql.slackwater.arrangements

import java.util.Comparator

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.unsafe.Platform

/** An update that waits for its time: 24 bytes, then the row, which is whole words.
  *
  * As with `Platform`, `base` is null for memory outside the heap, and `at` is then an address.
  */
private[arrangements] object Transition {
  private val Time = 0
  private val Diff = 8
  private val Length = 16
  val Row = 24

  def time(base: Object, at: Long): Long = Platform.getLong(base, at + Time)
  def diff(base: Object, at: Long): Long = Platform.getLong(base, at + Diff)
  def rowLength(base: Object, at: Long): Int = Platform.getInt(base, at + Length)
  def bytes(base: Object, at: Long): Int = Row + rowLength(base, at)

  def put(base: Object, at: Long, row: UnsafeRow, time: Long, diff: Long): Unit = {
    Platform.putLong(base, at + Time, time)
    Platform.putLong(base, at + Diff, diff)
    Platform.putInt(base, at + Length, row.getSizeInBytes)
    val length = row.getSizeInBytes
    Update.copyWords(row.getBaseObject, row.getBaseOffset, base, at + Row, length)
  }

  /** All of it but how often, which is `diff`. */
  def copy(from: Object, at: Long, diff: Long, target: Long): Unit = {
    Update.copyWords(from, at, null, target, bytes(from, at))
    Platform.putLong(null, target + Diff, diff)
  }

  /** By time, then by row. */
  def compare(a: Object, atA: Long, b: Object, atB: Long): Int = {
    val byTime = java.lang.Long.compare(time(a, atA), time(b, atB))
    if (byTime != 0) byTime
    else {
      val length = rowLength(a, atA)
      val byLength = Integer.compare(length, rowLength(b, atB))
      if (byLength != 0) byLength else compareWords(a, atA + Row, b, atB + Row, length)
    }
  }

  private def compareWords(a: Object, atA: Long, b: Object, atB: Long, length: Int): Int = {
    var i = 0
    while (i < length && Platform.getLong(a, atA + i) == Platform.getLong(b, atB + i)) i += 8
    if (i == length) 0
    else java.lang.Long.compare(Platform.getLong(a, atA + i), Platform.getLong(b, atB + i))
  }
}

/** Transitions in their order, from the present one on. */
private[arrangements] trait Transitions {
  def isAtEnd: Boolean
  def base: Object
  def at: Long
  def advance(): Unit
}

/** Transitions that have an order. */
private[arrangements] trait Sorted {

  /** From the first one on, for each caller anew. */
  def transitions: Transitions
}

/** Transitions of one interval, copied into the heap. One thread fills it. */
final class TransitionBatch {
  private val chunks = ArrayBuffer(new TransitionChunk)

  /** Whether it had better be appended before more is added. */
  def isLarge: Boolean = chunks.size > 1

  /** Copies `row`. `time` in ms. */
  def add(row: UnsafeRow, time: Long, diff: Long): Unit = if (diff != 0) {
    if (chunks.last.isFull) chunks += new TransitionChunk
    chunks.last.add(row, time, diff)
  }

  private[arrangements] def sorted: Seq[Sorted] = chunks.toSeq.filterNot(_.isEmpty).map(_.sorted)
}

/** Some of a batch, in the order in which they came. */
private[arrangements] final class TransitionChunk {
  private var bytes = new Array[Byte](TransitionChunk.FirstBytes)
  private val places = ArrayBuffer.empty[Integer]
  private var free = 0

  def isEmpty: Boolean = places.isEmpty
  def isFull: Boolean = free >= TransitionChunk.FullBytes

  def add(row: UnsafeRow, time: Long, diff: Long): Unit = {
    val end = Math.addExact(free, Transition.Row + row.getSizeInBytes)
    if (end > bytes.length)
      bytes = java.util.Arrays.copyOf(bytes, math.max(end, 2 * bytes.length))
    Transition.put(bytes, place(free), row, time, diff)
    places += free
    free = end
  }

  def sorted: Sorted = {
    val order = places.toArray
    val byTime: Comparator[Integer] =
      (a, b) => Transition.compare(bytes, place(a), bytes, place(b))
    java.util.Arrays.sort(order, byTime)
    new Sorted {
      override def transitions: Transitions = new Transitions {
        private var i = 0
        override def isAtEnd: Boolean = i == order.length
        override def base: Object = bytes
        override def at: Long = place(order(i))
        override def advance(): Unit = i += 1
      }
    }
  }

  private def place(offset: Int): Long = Platform.BYTE_ARRAY_OFFSET.toLong + offset
}

private object TransitionChunk {
  val FirstBytes: Int = 1 << 10
  val FullBytes: Int = 4 << 20
}
