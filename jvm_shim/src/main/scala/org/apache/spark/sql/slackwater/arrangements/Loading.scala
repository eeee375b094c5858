package org.apache.spark.sql.slackwater.arrangements

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/** Fills segments with initial contents as they are read: rows are in the log of a segment, which
  * needs no index yet, until they are packed.
  *
  * Where rows come in the order of ranges of hashes, a segment is packed when all that it gets is
  * there, or when too much is not packed; else when what it gets is much of what it has. So there is
  * never more than a part of the rows unpacked.
  *
  * @param rangeBits
  *   how many first bits of the hashes rows come in the order of
  */
private[arrangements] final class Loading(
    segments: Segments,
    asOf: Long,
    layout: Layout,
    memory: Allotment,
    rangeBits: Int
) {

  // Of the range that is read: where it begins. Segments that end before `passed` are packed.
  private var range = 0L
  private var passed = 0L

  private val most = memory.share(Loading.MostUnpacked)
  private var unpacked = 0L

  def add(key: UnsafeRow, row: UnsafeRow, diff: Long): Unit = if (diff != 0) {
    val hash = layout.hash(key)
    if (rangeBits > 0) reach(hash >>> (32 - rangeBits))
    val segment = segments.of(hash)
    val log = segment.overlay.log
    val bytes = Update.bytes(key.getSizeInBytes, row.getSizeInBytes)
    log.ensure(bytes)
    Update.put(null, log.claim(bytes), hash, key, row, asOf, diff)
    unpacked += bytes
    val isMuch =
      log.rows >= math.max(layout.shape.segmentRows, segment.base.contents.updates) / 2
    if (isMuch && unpacked >= most) merge(segment, hash)
  }

  /** Packs what is left. */
  def finish(): Unit = pack(Segments.End)

  private def reach(next: Int): Unit = {
    val begin = next.toLong << (32 - rangeBits)
    if (begin != range) {
      range = begin
      pack(begin)
    }
  }

  /** Packs the segments that end before `end`. */
  private def pack(end: Long): Unit =
    while (passed < end && segments.after(passed) <= end) {
      val next = segments.after(passed)
      val segment = segments.of(passed.toInt)
      if (!segment.overlay.isEmpty) merge(segment, passed.toInt)
      passed = next
    }

  private def merge(segment: Segment, hash: Int): Unit = {
    unpacked -= segment.overlay.log.usedBytes
    segments.replace(hash, new SegmentMerge(segment, asOf, layout, memory).segments())
  }
}

private object Loading {

  /** So many bytes may be unpacked, however little is packed already. */
  val MostUnpacked: Long = 32L << 20
}
