package org.apache.spark.sql.slackwater.arrangements

import java.util.Arrays

import org.apache.spark.unsafe.Platform

/** The lowest and the highest value of each word of rows of one kind.
  *
  * `words` is the length of the part that all rows have: the NULL bits and a word for each field. What
  * comes after it is the tail, with strings and what else has no fixed length.
  */
private[arrangements] final class Ranges(words: Int) {
  // One more, for the length of the tail in words.
  private val low = new Array[Long](words + 1)
  private val high = new Array[Long](words + 1)
  Arrays.fill(low, Long.MaxValue)
  Arrays.fill(high, Long.MinValue)

  def include(at: Long, length: Int): Unit = {
    var i = 0
    while (i < words) {
      includeWord(i, Platform.getLong(null, at + 8L * i))
      i += 1
    }
    includeWord(words, length / 8 - words)
  }

  def includeWord(i: Int, value: Long): Unit = {
    if (value < low(i)) low(i) = value
    if (value > high(i)) high(i) = value
  }

  def frame: Frame = new Frame(low, high)
}

/** How rows of one kind are packed: each word as its distance from the lowest one, in as many bytes
  * as the largest distance takes (none at all if all are equal), then the tail as it is.
  *
  * Words are read and written eight bytes at a time, so a block needs eight bytes behind the last one.
  */
private[arrangements] final class Frame(low: Array[Long], high: Array[Long]) {
  private val words = low.length - 1
  private val mask = new Array[Long](low.length)
  private val offset = new Array[Int](low.length)

  /** Of a packed row without its tail, in bytes. */
  val width: Int = {
    var end = 0
    for (i <- low.indices) {
      val bytes = Frame.bytesFor(low(i), high(i))
      mask(i) = if (bytes == 8) -1L else (1L << 8 * bytes) - 1
      offset(i) = end
      end += bytes
    }
    end
  }

  /** Whether all packed rows are `width` bytes long. */
  val noTails: Boolean = high(words) <= 0

  def word(at: Long, i: Int): Long =
    (Platform.getLong(null, at + offset(i)) & mask(i)) + low(i)

  def putWord(at: Long, i: Int, value: Long): Unit =
    Platform.putLong(null, at + offset(i), value - low(i))

  /** In bytes, of the row that is packed at `at`. */
  def unpackedLength(at: Long): Int = 8 * (words + word(at, words).toInt)

  /** In bytes, of a row of `length` bytes. */
  def packedLength(length: Int): Int = width + length - 8 * words

  def pack(row: Long, length: Int, at: Long): Unit = {
    var i = 0
    while (i < words) {
      putWord(at, i, Platform.getLong(null, row + 8L * i))
      i += 1
    }
    putWord(at, words, length / 8 - words)
    Update.copyWords(null, row + 8L * words, null, at + width, length - 8 * words)
  }

  /** `length` is what [[unpackedLength]] says. */
  def unpack(at: Long, base: Object, row: Long, length: Int): Unit = {
    var i = 0
    while (i < words) {
      Platform.putLong(base, row + 8L * i, word(at, i))
      i += 1
    }
    Update.copyWords(null, at + width, base, row + 8L * words, length - 8 * words)
  }

  def holds(at: Long, base: Object, row: Long, length: Int): Boolean = {
    var i = 0
    while (i < words && word(at, i) == Platform.getLong(base, row + 8L * i)) i += 1
    i == words && unpackedLength(at) == length &&
    Update.sameBytes(null, at + width, base, row + 8L * words, length - 8 * words)
  }
}

private object Frame {

  def bytesFor(low: Long, high: Long): Int = {
    val range = high - low
    if (low >= high) 0
    else if (range < 0) 8
    else (71 - java.lang.Long.numberOfLeadingZeros(range)) / 8
  }
}
