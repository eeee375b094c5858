package org.apache.spark.sql.slackwater.arrangements

import org.apache.spark.sql.catalyst.expressions.{UnsafeRow, XXH64}
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.array.ByteArrayMethods

/** An update that is not packed: 32 bytes, then the key, then the row, all in multiples of 8 bytes.
  *
  * This is what a batch has in the heap, an overlay outside of it, and what a base is unpacked to. As
  * with `Platform`, `base` is null for memory outside the heap, and `at` is then an address.
  */
private[arrangements] object Update {

  // Where an overlay's older update of the same key is.
  private val Next = 0
  private val KeyLength = 4
  private val RowLength = 8
  private val Hash = 12
  private val Time = 16
  private val Diff = 24
  val Key = 32

  def bytes(keyLength: Int, rowLength: Int): Int = Key + keyLength + rowLength

  def next(base: Object, at: Long): Int = Platform.getInt(base, at + Next)
  def keyLength(base: Object, at: Long): Int = Platform.getInt(base, at + KeyLength)
  def rowLength(base: Object, at: Long): Int = Platform.getInt(base, at + RowLength)
  def hash(base: Object, at: Long): Int = Platform.getInt(base, at + Hash)
  def time(base: Object, at: Long): Long = Platform.getLong(base, at + Time)
  def diff(base: Object, at: Long): Long = Platform.getLong(base, at + Diff)
  def bytes(base: Object, at: Long): Int = bytes(keyLength(base, at), rowLength(base, at))

  /** Where the row is. */
  def row(base: Object, at: Long): Long = at + Key + keyLength(base, at)

  def putNext(base: Object, at: Long, next: Int): Unit = Platform.putInt(base, at + Next, next)
  def putHash(base: Object, at: Long, hash: Int): Unit = Platform.putInt(base, at + Hash, hash)

  /** Writes all but `next`, the key and the row. */
  def putHeader(
      base: Object,
      at: Long,
      keyLength: Int,
      rowLength: Int,
      hash: Int,
      time: Long,
      diff: Long
  ): Unit = {
    Platform.putInt(base, at + KeyLength, keyLength)
    Platform.putInt(base, at + RowLength, rowLength)
    Platform.putInt(base, at + Hash, hash)
    Platform.putLong(base, at + Time, time)
    Platform.putLong(base, at + Diff, diff)
  }

  def put(
      base: Object,
      at: Long,
      hash: Int,
      key: UnsafeRow,
      row: UnsafeRow,
      time: Long,
      diff: Long
  ): Unit = {
    val keyLength = key.getSizeInBytes
    putHeader(base, at, keyLength, row.getSizeInBytes, hash, time, diff)
    copyWords(key.getBaseObject, key.getBaseOffset, base, at + Key, keyLength)
    copyWords(row.getBaseObject, row.getBaseOffset, base, at + Key + keyLength, row.getSizeInBytes)
  }

  def sameKey(a: Long, b: Long): Boolean = {
    val length = keyLength(null, a)
    length == keyLength(null, b) && sameBytes(null, a + Key, null, b + Key, length)
  }

  /** Where rows are placed by. Rows are whole words, so it reads words. */
  def hash(base: Object, at: Long, length: Int): Int =
    (XXH64.hashUnsafeWords(base, at, length, 42L) >>> 32).toInt

  def hash(row: UnsafeRow): Int = hash(row.getBaseObject, row.getBaseOffset, row.getSizeInBytes)

  def sameBytes(a: Object, atA: Long, b: Object, atB: Long, length: Int): Boolean =
    ByteArrayMethods.arrayEquals(a, atA, b, atB, length)

  /** `length` is that of whole words. `Platform.copyMemory` takes longer to start than most rows take. */
  def copyWords(from: Object, at: Long, to: Object, target: Long, length: Int): Unit =
    if (length > 256) Platform.copyMemory(from, at, to, target, length)
    else {
      var i = 0
      while (i < length) {
        Platform.putLong(to, target + i, Platform.getLong(from, at + i))
        i += 8
      }
    }
}
