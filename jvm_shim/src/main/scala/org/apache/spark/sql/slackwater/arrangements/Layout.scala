package org.apache.spark.sql.slackwater.arrangements

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/** How an arrangement is cut.
  *
  * @param segmentRows
  *   what a segment has at most twice of, unless a single key has them
  * @param foldShare
  *   a segment is merged when more than this share of its base's rows could be folded into it
  * @param foldRows
  *   it is not for so many rows or fewer, however small the base is
  * @param hashBits
  *   how many bits of a hash count; fewer than all in tests, where they make keys collide
  */
private[arrangements] final case class Shape(
    segmentRows: Int = 32 << 10,
    foldShare: Double = 1.0 / 8,
    foldRows: Int = 256,
    hashBits: Int = 32
)

/** What the parts of an arrangement know in common: the lengths of rows, and where a key belongs. */
private[arrangements] final class Layout(val keyFields: Int, val rowFields: Int, val shape: Shape) {

  /** Of the parts that all keys, and all rows, have. */
  val keyWords: Int = Layout.words(keyFields)
  val rowWords: Int = Layout.words(rowFields)

  private val hashMask = if (shape.hashBits == 0) 0 else -1 << (32 - shape.hashBits)

  def hash(base: Object, key: Long, length: Int): Int = Update.hash(base, key, length) & hashMask
  def hash(key: UnsafeRow): Int = hash(key.getBaseObject, key.getBaseOffset, key.getSizeInBytes)

  /** That of the key of an update that does not know this layout. */
  def hashOf(base: Object, update: Long): Int = Update.hash(base, update) & hashMask
}

private object Layout {
  def words(fields: Int): Int = UnsafeRow.calculateBitSetWidthInBytes(fields) / 8 + fields
}
