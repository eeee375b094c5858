package org.apache.spark.sql.slackwater.arrangements

/** The keys whose hashes begin with the same `depth` bits: a packed base, and what came since. */
private[arrangements] final class Segment(val depth: Int, val base: Base, memory: Allotment) {
  val overlay = new Overlay(memory)

  def rows: Long = base.contents.updates.toLong + overlay.rows

  /** A key that is in both counts twice. */
  def keys: Long = base.contents.groups.toLong + overlay.keys

  /** Whether to merge it: its overlay, and what of the base has become history, are much of it. */
  def isDue(since: Long, shape: Shape): Boolean = {
    val contents = base.contents
    val unsettled = if (contents.latest <= since) contents.unsettled else 0
    overlay.rows + unsettled > math.max(shape.foldRows, contents.updates * shape.foldShare)
  }

  def close(): Unit = {
    if (base.block != null) memory.free(base.block)
    overlay.close()
  }
}

/** The segments by the first bits of hashes, as in extendible hashing: a segment that is less deep
  * than the table is there several times.
  */
private[arrangements] final class Segments(memory: Allotment) {
  private var depth = 0
  private var table = Array(new Segment(0, Base.empty, memory))

  def of(hash: Int): Segment = table(indexOf(hash))

  private def indexOf(hash: Int): Int = (hash >>> 1) >>> (31 - depth)

  /** The hash with which the next segment begins, as an unsigned number; 2^32^ after the last one. */
  def after(hash: Long): Long = {
    val width = 1L << (32 - of(hash.toInt).depth)
    (hash / width + 1) * width
  }

  /** Puts `parts`, which are in the order of hashes, in the place of the segment of `hash`. */
  def replace(hash: Int, parts: Seq[Segment]): Unit = {
    val old = of(hash)
    while (parts.exists(_.depth > depth)) {
      table = table.flatMap(segment => Array(segment, segment))
      depth += 1
    }
    var at = indexOf(hash) >>> (depth - old.depth) << (depth - old.depth)
    for (part <- parts) {
      val next = at + (1 << (depth - part.depth))
      java.util.Arrays.fill(table.asInstanceOf[Array[AnyRef]], at, next, part)
      at = next
    }
    old.close()
  }

  def foreach(visit: Segment => Unit): Unit = {
    var hash = 0L
    while (hash < Segments.End) {
      visit(of(hash.toInt))
      hash = after(hash)
    }
  }

  def close(): Unit = foreach(_.close())
}

private[arrangements] object Segments {
  val End: Long = 1L << 32
}
