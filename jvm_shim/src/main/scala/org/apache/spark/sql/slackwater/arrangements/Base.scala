package org.apache.spark.sql.slackwater.arrangements

import org.apache.spark.unsafe.Platform

/** Where the updates of one key are in a base. */
private[arrangements] final class GroupCursor {

  /** Of the packed key. */
  var key = 0L

  /** Of the first update. Those with a time and a multiplicity of their own come first. */
  var updates = 0L
  var versioned = 0
  var plain = 0

  /** Of all updates together, or -1 where they have to be counted. */
  var bytes = -1L
}

/** What a base consists of. */
private[arrangements] final case class BaseContents(
    keys: Frame,
    rows: Frame,
    versions: Frame,
    groups: Int,
    updates: Int,
    versioned: Int,
    /** Updates that were later than since, and the time of the last one, in ms. */
    unsettled: Int,
    latest: Long,
    packedBytes: Long,
    unpackedBytes: Long
)

/** The updates of a range of hashes, packed, in the order of hashes. It never changes.
  *
  * A block has a directory, which says where the groups of each small range of hashes begin, and the
  * groups. A group is a header, a key and the key's updates. A plain update is history that exists
  * once: it has no time and no multiplicity of its own.
  */
private[arrangements] final class Base(
    depth: Int,
    bits: Int,
    val block: Block,
    val contents: BaseContents
) {
  import contents.{keys, rows, versions}

  private val start = if (block == null) 0 else block.address + Base.directoryBytes(bits)

  def first: Long = start
  def end: Long = start + contents.packedBytes

  def find(hash: Int, base: Object, at: Long, length: Int, group: GroupCursor): Boolean =
    block != null && {
      val bucket = (hash << depth >>> 1) >>> (31 - bits)
      val limit = bucketStart(bucket + 1)
      var position = bucketStart(bucket)
      var found = false
      while (!found && position < limit) {
        open(position, group)
        if (keys.holds(group.key, base, at, length)) found = true
        else position = next(group)
      }
      found
    }

  private def bucketStart(i: Int): Long =
    start + (Platform.getInt(null, block.address + 4L * i) & 0xffffffffL)

  /** Reads the header of the group at `position`. */
  def open(position: Long, group: GroupCursor): Unit = {
    val count = Platform.getByte(null, position) & 0xff
    if (count == Base.Large) {
      group.plain = Platform.getInt(null, position + 1)
      group.versioned = Platform.getInt(null, position + 5)
      group.bytes = Platform.getLong(null, position + 9)
      group.key = position + Base.LargeHeader
    } else {
      group.plain = count
      group.versioned =
        if (contents.versioned > 0) Platform.getByte(null, position + 1) & 0xff else 0
      group.bytes = -1
      group.key = position + Base.smallHeader(contents.versioned)
    }
    group.updates = group.key + keys.packedLength(keys.unpackedLength(group.key))
  }

  /** Where the next group is. */
  def next(group: GroupCursor): Long =
    if (group.bytes >= 0) group.updates + group.bytes
    else if (rows.noTails)
      group.updates + group.plain.toLong * rows.width +
        group.versioned.toLong * (rows.width + versions.width)
    else {
      var at = group.updates
      var i = 0
      while (i < group.versioned) {
        at = afterRow(at) + versions.width
        i += 1
      }
      i = 0
      while (i < group.plain) {
        at = afterRow(at)
        i += 1
      }
      at
    }

  private def afterRow(at: Long): Long = at + rows.packedLength(rows.unpackedLength(at))

  /** Unpacks all to `target`, as updates, in the order of their hashes. `hash` is that of a key. */
  def unpack(target: Long, since: Long, layout: Layout): Unit = if (block != null) {
    val group = new GroupCursor
    var position = first
    var to = target
    while (position < end) {
      open(position, group)
      val keyLength = keys.unpackedLength(group.key)
      keys.unpack(group.key, null, to + Update.Key, keyLength)
      val key = to + Update.Key
      val hash = layout.hash(null, key, keyLength)
      var at = group.updates
      var i = 0
      while (i < group.versioned + group.plain) {
        val length = rows.unpackedLength(at)
        if (to + Update.Key != key)
          Update.copyWords(null, key, null, to + Update.Key, keyLength)
        rows.unpack(at, null, to + Update.Key + keyLength, length)
        at += rows.packedLength(length)
        if (i < group.versioned) {
          val time = versions.word(at, Base.Time)
          val diff = versions.word(at, Base.Diff)
          Update.putHeader(null, to, keyLength, length, hash, time, diff)
          at += versions.width
        } else Update.putHeader(null, to, keyLength, length, hash, since, 1)
        to += Update.bytes(keyLength, length)
        i += 1
      }
      position = at
    }
  }
}

private[arrangements] object Base {

  /** The words of a version. */
  val Time = 0
  val Diff = 1

  /** The first byte of the header of a group that has more updates than two bytes can say. */
  val Large = 255
  val LargeHeader = 17

  /** Places in a directory are 32 bits. */
  val MaxBytes: Long = 0xffffffffL

  def smallHeader(versioned: Int): Int = if (versioned > 0) 2 else 1

  def directoryBytes(bits: Int): Long = 4L * ((1 << bits) + 1)

  val empty: Base = {
    val none = new Ranges(0).frame
    new Base(0, 0, null, BaseContents(none, none, none, 0, 0, 0, 0, Long.MinValue, 0, 0))
  }
}
