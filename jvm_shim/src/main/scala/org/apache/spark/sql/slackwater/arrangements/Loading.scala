package org.apache.spark.sql.slackwater.arrangements

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/** Fills segments with initial contents as they are read: rows are in the log of a segment, which
  * needs no index yet, until they are packed. So there is never more than a part of them unpacked.
  */
private[arrangements] final class Loading(
    segments: Segments,
    asOf: Long,
    layout: Layout,
    memory: Allotment
) {

  def add(key: UnsafeRow, row: UnsafeRow, diff: Long): Unit = if (diff != 0) {
    val hash = layout.hash(key)
    val segment = segments.of(hash)
    val log = segment.overlay.log
    val bytes = Update.bytes(key.getSizeInBytes, row.getSizeInBytes)
    log.ensure(bytes)
    Update.put(null, log.claim(bytes), hash, key, row, asOf, diff)
    if (log.rows >= math.max(layout.shape.segmentRows, segment.base.contents.updates) / 2)
      merge(segment, hash)
  }

  /** Packs what is left. */
  def finish(): Unit = {
    var hash = 0L
    while (hash < Segments.End) {
      val next = segments.after(hash)
      val segment = segments.of(hash.toInt)
      if (!segment.overlay.isEmpty) merge(segment, hash.toInt)
      hash = next
    }
  }

  private def merge(segment: Segment, hash: Int): Unit =
    segments.replace(hash, new SegmentMerge(segment, asOf, layout, memory).segments())
}
