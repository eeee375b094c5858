package org.apache.spark.sql.slackwater.arrangements

import org.apache.spark.unsafe.Platform

/** Updates one after the other in a block that grows. */
private[arrangements] final class Log(memory: Allotment) {
  private var block: Block = null
  private var count = 0
  private var end = 0L

  def rows: Int = count
  def usedBytes: Long = end
  def start: Long = if (block == null) 0 else block.address

  /** Makes place for so many bytes. Throws [[ArrangementTooLarge]] and leaves all as it was. */
  def ensure(bytes: Long): Unit = {
    val wanted = end + bytes
    if (wanted > Log.MaxBytes)
      throw new ArrangementTooLarge(memory.owner, wanted, end, Log.MaxBytes)
    val capacity = if (block == null) 0 else block.bytes
    if (wanted > capacity) {
      val larger = memory.allocate(math.max(wanted, capacity + capacity / 2))
      if (block != null) {
        Platform.copyMemory(null, block.address, null, larger.address, end)
        memory.free(block)
      }
      block = larger
    }
  }

  /** Where the next update is to be written, which takes `bytes` that [[ensure]] made place for. */
  def claim(bytes: Int): Long = {
    val at = block.address + end
    end += bytes
    count += 1
    at
  }

  def close(): Unit = if (block != null) {
    memory.free(block)
    block = null
    end = 0
    count = 0
  }
}

private object Log {
  // Places in a log are 32 bits of words.
  val MaxBytes: Long = 8L << 31
}

/** What was appended to a segment since its base was made: a log, and an index of its keys.
  *
  * A slot of the index has the place of a key's newest update, which has that of the one before, so
  * that a hot key costs no more than others to append to.
  */
private[arrangements] final class Overlay(memory: Allotment) {
  val log = new Log(memory)
  private var index: Block = null
  private var mask = -1
  private var distinct = 0

  // What the batch that is being appended brings.
  private var comingRows = 0
  private var comingBytes = 0L

  def isEmpty: Boolean = log.rows == 0
  def rows: Int = log.rows
  def keys: Int = distinct

  /** Announces an update. True for the first one of a batch. */
  def expect(bytes: Int): Boolean = {
    comingRows += 1
    comingBytes += bytes
    comingRows == 1
  }

  def expectNothing(): Unit = {
    comingRows = 0
    comingBytes = 0
  }

  /** Makes place for what was announced. Throws [[ArrangementTooLarge]]; nothing was added then. */
  def makeRoom(): Unit = {
    log.ensure(comingBytes)
    val needed = Overlay.slots(distinct.toLong + comingRows)
    if (needed > mask + 1) reindex(needed)
  }

  private def reindex(slots: Int): Unit = {
    val larger = memory.allocate(4L * slots)
    Platform.setMemory(larger.address, 0, 4L * slots)
    val old = index
    val oldSlots = mask + 1
    index = larger
    mask = slots - 1
    if (old != null) {
      var i = 0
      while (i < oldSlots) {
        val place = Platform.getInt(null, old.address + 4L * i)
        if (place != 0) {
          var slot = Update.hash(null, address(place)) & mask
          while (placeAt(slot) != 0) slot = (slot + 1) & mask
          putPlace(slot, place)
        }
        i += 1
      }
      memory.free(old)
    }
  }

  /** Copies an update that [[makeRoom]] made place for; `hash` is that of its key. */
  def add(base: Object, at: Long, hash: Int): Unit = {
    val bytes = Update.bytes(base, at)
    val copy = log.claim(bytes)
    Update.copyWords(base, at, null, copy, bytes)
    val slot = slotOf(hash, base, at + Update.Key, Update.keyLength(base, at))
    val older = placeAt(slot)
    if (older == 0) distinct += 1
    Update.putHash(null, copy, hash)
    Update.putNext(null, copy, older)
    putPlace(slot, ((copy - log.start) / 8 + 1).toInt)
  }

  /** The address of a key's newest update, 0 if there is none. */
  def find(hash: Int, base: Object, at: Long, length: Int): Long =
    if (isEmpty) 0 else address(placeAt(slotOf(hash, base, at, length)))

  /** The address of the update of the same key that was added before the one at `at`, or 0. */
  def older(at: Long): Long = address(Update.next(null, at))

  def slots: Int = mask + 1

  /** The address of the newest update of the key in a slot, 0 if the slot is empty. */
  def newest(slot: Int): Long = address(placeAt(slot))

  private def slotOf(hash: Int, base: Object, at: Long, length: Int): Int = {
    var slot = hash & mask
    var place = placeAt(slot)
    while (place != 0 && !isKey(address(place), hash, base, at, length)) {
      slot = (slot + 1) & mask
      place = placeAt(slot)
    }
    slot
  }

  private def isKey(update: Long, hash: Int, base: Object, at: Long, length: Int): Boolean =
    Update.hash(null, update) == hash && Update.keyLength(null, update) == length &&
      Update.sameBytes(null, update + Update.Key, base, at, length)

  private def placeAt(slot: Int): Int = Platform.getInt(null, index.address + 4L * slot)
  private def putPlace(slot: Int, place: Int): Unit =
    Platform.putInt(null, index.address + 4L * slot, place)

  private def address(place: Int): Long =
    if (place == 0) 0 else log.start + 8L * ((place & 0xffffffffL) - 1)

  def close(): Unit = {
    log.close()
    if (index != null) memory.free(index)
    index = null
    mask = -1
    distinct = 0
  }
}

private object Overlay {

  /** So many that at least a quarter stays empty. */
  def slots(keys: Long): Int = {
    val least = keys + keys / 3 + 1
    Math.toIntExact(math.max(16, java.lang.Long.highestOneBit(least - 1) << 1))
  }
}
