package org.apache.spark.sql.slackwater.arrangements

import org.apache.spark.unsafe.Platform

/** Packs groups of consolidated updates to bases.
  *
  * @param updates
  *   their addresses, `left` of them
  * @param diffs
  *   their multiplicities
  */
private[arrangements] final class Packing(
    updates: Array[Long],
    diffs: Array[Long],
    groups: Groups,
    left: Int,
    since: Long,
    layout: Layout,
    memory: Allotment
) {

  /** A base of the groups `from` until `to`, whose hashes agree in the first `depth` bits.
    *
    * Throws [[ArrangementTooLarge]].
    */
  def pack(depth: Int, from: Int, to: Int): Base = {
    val contents = measure(from, to)
    val bits = directoryBits(depth, to - from)
    if (contents.packedBytes > Base.MaxBytes)
      throw new ArrangementTooLarge(memory.owner, contents.packedBytes, 0, Base.MaxBytes)
    // Frames write eight bytes at a time.
    val block = memory.allocate(Base.directoryBytes(bits) + contents.packedBytes + 8)
    write(contents, block, depth, bits, from, to)
    new Base(depth, bits, block, contents)
  }

  private def directoryBits(depth: Int, count: Int): Int =
    math.min(32 - Integer.numberOfLeadingZeros(count - 1), 31 - depth)

  private def timeOf(i: Int): Long = math.max(Update.time(null, updates(i)), since)

  private def measure(from: Int, to: Int): BaseContents = {
    val keys = new Ranges(layout.keyWords)
    val rows = new Ranges(layout.rowWords)
    val versions = new Ranges(2)
    var versioned = 0
    var unsettled = 0
    var latest = Long.MinValue
    var unpacked = 0L
    for (group <- from until to) {
      val start = groups.start(group, left)
      val end = groups.start(group + 1, left)
      val firstPlain = start + groups.versioned(group)
      val first = updates(start)
      val keyLength = Update.keyLength(null, first)
      keys.include(first + Update.Key, keyLength)
      versioned += groups.versioned(group)
      var i = start
      while (i < end) {
        val length = Update.rowLength(null, updates(i))
        rows.include(Update.row(null, updates(i)), length)
        unpacked += Update.bytes(keyLength, length)
        if (i < firstPlain) {
          val time = timeOf(i)
          versions.includeWord(Base.Time, time)
          versions.includeWord(Base.Diff, diffs(i))
          if (time > since) unsettled += 1
          latest = math.max(latest, time)
        }
        i += 1
      }
    }
    val (k, r, v) = (keys.frame, rows.frame, versions.frame)
    val packed = packedBytes(k, r, v, versioned, from, to)
    val count = groups.start(to, left) - groups.start(from, left)
    BaseContents(k, r, v, to - from, count, versioned, unsettled, latest, packed, unpacked)
  }

  private def packedBytes(
      keys: Frame,
      rows: Frame,
      versions: Frame,
      versioned: Int,
      from: Int,
      to: Int
  ): Long = {
    var bytes = 0L
    for (group <- from until to) {
      val first = updates(groups.start(group, left))
      bytes += (if (isLarge(group)) Base.LargeHeader else Base.smallHeader(versioned))
      bytes += keys.packedLength(Update.keyLength(null, first))
      bytes += groupBytes(rows, versions, group)
    }
    bytes
  }

  private def isLarge(group: Int): Boolean = {
    val versioned = groups.versioned(group)
    versioned > 255 ||
    groups.start(group + 1, left) - groups.start(group, left) - versioned >= Base.Large
  }

  /** Of the packed updates of a group. */
  private def groupBytes(rows: Frame, versions: Frame, group: Int): Long = {
    var bytes = groups.versioned(group).toLong * versions.width
    val end = groups.start(group + 1, left)
    var i = groups.start(group, left)
    while (i < end) {
      bytes += rows.packedLength(Update.rowLength(null, updates(i)))
      i += 1
    }
    bytes
  }

  private def write(
      contents: BaseContents,
      block: Block,
      depth: Int,
      bits: Int,
      from: Int,
      to: Int
  ): Unit = {
    val start = block.address + Base.directoryBytes(bits)
    var at = start
    var bucket = 0
    def beginBucketsUntil(last: Int): Unit =
      while (bucket <= last) {
        Platform.putInt(null, block.address + 4L * bucket, (at - start).toInt)
        bucket += 1
      }
    for (group <- from until to) {
      beginBucketsUntil((groups.hash(group) << depth >>> 1) >>> (31 - bits))
      at = writeGroup(contents, group, writeHeader(contents, group, at))
    }
    beginBucketsUntil(1 << bits)
  }

  private def writeHeader(contents: BaseContents, group: Int, at: Long): Long = {
    val versioned = groups.versioned(group)
    val plain = groups.start(group + 1, left) - groups.start(group, left) - versioned
    if (isLarge(group)) {
      Platform.putByte(null, at, Base.Large.toByte)
      Platform.putInt(null, at + 1, plain)
      Platform.putInt(null, at + 5, versioned)
      Platform.putLong(null, at + 9, groupBytes(contents.rows, contents.versions, group))
      at + Base.LargeHeader
    } else {
      Platform.putByte(null, at, plain.toByte)
      if (contents.versioned > 0) Platform.putByte(null, at + 1, versioned.toByte)
      at + Base.smallHeader(contents.versioned)
    }
  }

  private def writeGroup(contents: BaseContents, group: Int, position: Long): Long = {
    val start = groups.start(group, left)
    val end = groups.start(group + 1, left)
    val firstPlain = start + groups.versioned(group)
    val keyLength = Update.keyLength(null, updates(start))
    contents.keys.pack(updates(start) + Update.Key, keyLength, position)
    var at = position + contents.keys.packedLength(keyLength)
    var i = start
    while (i < end) {
      val length = Update.rowLength(null, updates(i))
      contents.rows.pack(Update.row(null, updates(i)), length, at)
      at += contents.rows.packedLength(length)
      if (i < firstPlain) {
        contents.versions.putWord(at, Base.Time, timeOf(i))
        contents.versions.putWord(at, Base.Diff, diffs(i))
        at += contents.versions.width
      }
      i += 1
    }
    at
  }
}
