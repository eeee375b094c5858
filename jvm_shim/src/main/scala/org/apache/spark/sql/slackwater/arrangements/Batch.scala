package org.apache.spark.sql.slackwater.arrangements

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.unsafe.Platform

/** Updates of one interval, copied into the heap. One thread fills it. */
final class Batch {
  private val chunks = ArrayBuffer.empty[Array[Byte]]
  private var free = 0
  // The chunk in the upper half, the place in it in the lower.
  private var places = new Array[Long](16)
  private var count = 0
  private var first = Long.MaxValue
  private var last = Long.MinValue

  /** Copies `key` and `row`. `time` in ms. An update of no multiplicity says nothing and is left out. */
  def add(key: UnsafeRow, row: UnsafeRow, time: Long, diff: Long): Unit = if (diff != 0) {
    val length = Update.bytes(key.getSizeInBytes, row.getSizeInBytes)
    if (chunks.isEmpty || chunks.last.length - free < length) open(length)
    if (count == places.length) places = java.util.Arrays.copyOf(places, 2 * count)
    places(count) = (chunks.size - 1).toLong << 32 | free
    Update.put(
      chunks.last,
      Platform.BYTE_ARRAY_OFFSET + free,
      Update.hash(key),
      key,
      row,
      time,
      diff
    )
    count += 1
    free += length
    first = math.min(first, time)
    last = math.max(last, time)
  }

  private def open(length: Int): Unit = {
    val usual = Batch.ChunkBytes << math.min(chunks.size, Batch.Doublings)
    chunks += new Array[Byte](math.max(usual, length))
    free = 0
  }

  def size: Int = count

  /** The first time and the last, if there are updates. */
  private[arrangements] def firstTime: Long = first
  private[arrangements] def lastTime: Long = last

  private[arrangements] def chunk(i: Int): Array[Byte] = chunks((places(i) >>> 32).toInt)
  private[arrangements] def offset(i: Int): Long =
    Platform.BYTE_ARRAY_OFFSET + (places(i) & 0xffffffffL)
}

private object Batch {
  val ChunkBytes: Int = 16 << 10
  val Doublings = 8
}
