package org.apache.spark.sql.slackwater.arrangements

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.unsafe.Platform

/** Reads the updates of a key: those of its base, then what is left of its overlay.
  *
  * It copies rows into the heap before it hands them out, so that who keeps one by mistake reads
  * another row, not memory that was given back. A sink may look up something else in the same
  * arrangement: that takes another reader.
  */
private[arrangements] final class Reader(layout: Layout) {
  private val row = new UnsafeRow(layout.rowFields)
  private var buffer = new Array[Byte](1024)
  private val group = new GroupCursor
  private val history = new History
  private var busy = false
  private var inner: Reader = null

  /** This reader, or one of its own if it is in use further up in this thread. */
  def idle: Reader =
    if (!busy) this
    else {
      if (inner == null) inner = new Reader(layout)
      inner.idle
    }

  /** Gives the key's updates before `below` to `sink`, those up to since at since. */
  def read(
      segment: Segment,
      hash: Int,
      base: Object,
      key: Long,
      length: Int,
      since: Long,
      below: Long,
      sink: Sink
  ): Unit = {
    val newest = segment.overlay.find(hash, base, key, length)
    val packed = if (segment.base.find(hash, base, key, length, group)) segment.base else null
    read(segment, packed, newest, since, below, sink)
  }

  /** Gives the multiplicities of the key's updates before `below` to `sink`, the sum of those up to
    * since at since.
    */
  def count(
      segment: Segment,
      hash: Int,
      base: Object,
      key: Long,
      length: Int,
      since: Long,
      below: Long,
      sink: CountSink
  ): Unit = {
    val newest = segment.overlay.find(hash, base, key, length)
    busy = true
    try {
      var sum = countOverlay(segment.overlay, newest, since, below, sink)
      if (segment.base.find(hash, base, key, length, group))
        sum += countVersioned(segment.base, since, below, sink) + group.plain
      if (sum != 0) sink.take(since, sum)
    } finally busy = false
  }

  /** The sum of what is given at no time after since. */
  private def countOverlay(
      overlay: Overlay,
      newest: Long,
      since: Long,
      below: Long,
      sink: CountSink
  ): Long = {
    var sum = 0L
    var update = newest
    while (update != 0) {
      val time = Update.time(null, update)
      if (time <= since) sum += Update.diff(null, update)
      else if (time < below) sink.take(time, Update.diff(null, update))
      update = overlay.older(update)
    }
    sum
  }

  private def countVersioned(base: Base, since: Long, below: Long, sink: CountSink): Long = {
    val rows = base.contents.rows
    val versions = base.contents.versions
    var sum = 0L
    var at = group.updates
    var i = group.versioned
    while (i > 0) {
      val version = at + rows.packedLength(rows.unpackedLength(at))
      val time = versions.word(version, Base.Time)
      if (time <= since) sum += versions.word(version, Base.Diff)
      else if (time < below) sink.take(time, versions.word(version, Base.Diff))
      at = version + versions.width
      i -= 1
    }
    sum
  }

  /** Each update before `below` of a segment. */
  def readAll(
      segment: Segment,
      since: Long,
      below: Long,
      sink: KeyedSink
  ): Unit = {
    val key = new UnsafeRow(layout.keyFields)
    val withKey: Sink = (row, time, diff) => sink.take(key, row, time, diff)
    readGroups(segment, key, since, below, withKey)
    readNewKeys(segment, key, since, below, withKey)
  }

  private def readGroups(
      segment: Segment,
      key: UnsafeRow,
      since: Long,
      below: Long,
      sink: Sink
  ): Unit = {
    val base = segment.base
    val keys = base.contents.keys
    var bytes = new Array[Byte](256)
    var position = base.first
    while (position < base.end) {
      base.open(position, group)
      position = base.next(group)
      val length = keys.unpackedLength(group.key)
      if (length > bytes.length) bytes = new Array[Byte](2 * length)
      keys.unpack(group.key, bytes, Platform.BYTE_ARRAY_OFFSET, length)
      key.pointTo(bytes, length)
      val newest =
        if (segment.overlay.isEmpty) 0
        else {
          val hash = layout.hash(key)
          segment.overlay.find(hash, bytes, Platform.BYTE_ARRAY_OFFSET, length)
        }
      read(segment, base, newest, since, below, sink)
    }
  }

  /** The keys that are in the overlay alone. */
  private def readNewKeys(
      segment: Segment,
      key: UnsafeRow,
      since: Long,
      below: Long,
      sink: Sink
  ): Unit =
    for (slot <- 0 until segment.overlay.slots) {
      val newest = segment.overlay.newest(slot)
      if (newest != 0) {
        val length = Update.keyLength(null, newest)
        val at = newest + Update.Key
        if (!segment.base.find(Update.hash(null, newest), null, at, length, group)) {
          val bytes = new Array[Byte](length)
          Platform.copyMemory(null, at, bytes, Platform.BYTE_ARRAY_OFFSET, length)
          key.pointTo(bytes, length)
          read(segment, null, newest, since, below, sink)
        }
      }
    }

  /** `packed` is the base if it has the key, which `group` is then of, or null. */
  private def read(
      segment: Segment,
      packed: Base,
      newest: Long,
      since: Long,
      below: Long,
      sink: Sink
  ): Unit = {
    busy = true
    try {
      readOverlay(segment.overlay, newest, since, below, sink)
      if (packed != null) readPlain(packed, readVersioned(packed, since, below, sink), since, sink)
      if (!history.isEmpty) giveHistory(since, sink)
    } finally {
      history.clear()
      busy = false
    }
  }

  private def readOverlay(
      overlay: Overlay,
      newest: Long,
      since: Long,
      below: Long,
      sink: Sink
  ): Unit = {
    var update = newest
    while (update != 0) {
      val time = Update.time(null, update)
      if (time < below) {
        val length = Update.rowLength(null, update)
        reserve(length)
        val start = Platform.BYTE_ARRAY_OFFSET
        Update.copyWords(null, Update.row(null, update), buffer, start, length)
        give(length, time, Update.diff(null, update), since, sink)
      }
      update = overlay.older(update)
    }
  }

  /** Where the plain updates begin. */
  private def readVersioned(base: Base, since: Long, below: Long, sink: Sink): Long = {
    val rows = base.contents.rows
    val versions = base.contents.versions
    var at = group.updates
    var i = group.versioned
    while (i > 0) {
      val length = rows.unpackedLength(at)
      val version = at + rows.packedLength(length)
      val time = versions.word(version, Base.Time)
      if (time < below) {
        reserve(length)
        rows.unpack(at, buffer, Platform.BYTE_ARRAY_OFFSET, length)
        give(length, time, versions.word(version, Base.Diff), since, sink)
      }
      at = version + versions.width
      i -= 1
    }
    at
  }

  private def readPlain(base: Base, start: Long, since: Long, sink: Sink): Unit = {
    val rows = base.contents.rows
    val changed = !history.isEmpty
    var at = start
    var i = group.plain
    while (i > 0) {
      val length = rows.unpackedLength(at)
      reserve(length)
      rows.unpack(at, buffer, Platform.BYTE_ARRAY_OFFSET, length)
      val diff = if (changed) 1 + history.remove(buffer, length) else 1
      if (diff != 0) {
        row.pointTo(buffer, length)
        sink.take(row, since, diff)
      }
      at += rows.packedLength(length)
      i -= 1
    }
  }

  /** What became history since the base was made has to be summed before it is handed out. */
  private def give(length: Int, time: Long, diff: Long, since: Long, sink: Sink): Unit =
    if (time > since) {
      row.pointTo(buffer, length)
      sink.take(row, time, diff)
    } else history.add(buffer, length, diff)

  private def giveHistory(since: Long, sink: Sink): Unit = {
    var i = 0
    while (i < history.size) {
      val diff = history.diff(i)
      if (diff != 0) {
        history.point(row, i)
        sink.take(row, since, diff)
      }
      i += 1
    }
  }

  private def reserve(length: Int): Unit =
    if (length > buffer.length) buffer = new Array[Byte](Math.multiplyExact(2, length))
}
