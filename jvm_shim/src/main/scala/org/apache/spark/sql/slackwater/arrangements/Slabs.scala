package org.apache.spark.sql.slackwater.arrangements

import java.util.TreeMap

import scala.collection.mutable.ArrayBuffer

/** Whole pages of memory outside the heap, one after the other. */
private[arrangements] final class Block(
    val address: Long,
    val bytes: Long,
    private[arrangements] val slab: Slab
) {
  private[arrangements] var freed = false
}

/** Memory outside the heap, taken in slabs and handed out in pages.
  *
  * malloc keeps what is freed in small pieces, and arrangements free and take segments all the time.
  * A slab is large enough that malloc maps it by itself and gives it back when it is freed; its pages
  * cost nothing before they are written. One in a file has its place on the disk from the beginning.
  */
private[arrangements] final class Slabs(regions: Regions, limitBytes: Long) {
  private val slabs = ArrayBuffer.empty[Slab]
  private var taken = 0L
  private var limit = limitBytes

  /** `bytes` is a multiple of the page. The lowest free place is taken, so that high slabs empty.
    *
    * None: the limit is reached, or the system has no more.
    */
  def allocate(bytes: Long): Option[Block] = synchronized {
    val found =
      if (bytes > limit - taken) None
      else slabs.iterator.map(_.allocate(bytes)).find(_ != null).orElse(inNewSlab(bytes))
    if (found.nonEmpty) taken += bytes
    found
  }

  private def inNewSlab(bytes: Long): Option[Block] =
    regions.take(math.max(bytes, Slabs.SlabBytes)).map { region =>
      val slab = new Slab(region, this)
      slabs += slab
      slab.allocate(bytes)
    }

  def free(block: Block): Unit = synchronized {
    if (block.freed) throw new IllegalStateException("a block was freed twice")
    block.freed = true
    taken -= block.bytes
    block.slab.free(block)
    if (block.slab.isEmpty) {
      slabs -= block.slab
      block.slab.close()
    }
  }

  /** Another limit. What is taken beyond it stays; nothing more is given out until it is freed. */
  def resize(bytes: Long): Unit = synchronized { limit = bytes }

  /** In bytes. */
  def used: Long = synchronized(taken)

  /** What the slabs reserve of the address space, in bytes. */
  def reserved: Long = synchronized(slabs.iterator.map(_.bytes).sum)
}

private[arrangements] object Slabs {
  val PageBytes: Long = 4096
  val SlabBytes: Long = 64L << 20

  def wholePages(bytes: Long): Long = (math.max(bytes, 1) + PageBytes - 1) / PageBytes * PageBytes
}

private[arrangements] final class Slab(region: Region, val slabs: Slabs) {
  import region.{address, bytes => size}

  def bytes: Long = size

  // Offset to length. Neighbours are joined.
  private val gaps = new TreeMap[Long, Long]
  gaps.put(0L, size)

  def isEmpty: Boolean = gaps.size == 1 && gaps.firstEntry.getValue == size

  /** Null if there is no gap of that size. */
  def allocate(wanted: Long): Block = {
    var gap = gaps.firstEntry
    while (gap != null && gap.getValue < wanted) gap = gaps.higherEntry(gap.getKey)
    if (gap == null) null
    else {
      val offset = gap.getKey
      gaps.remove(offset)
      if (gap.getValue > wanted) gaps.put(offset + wanted, gap.getValue - wanted)
      new Block(address + offset, wanted, this)
    }
  }

  def free(block: Block): Unit = {
    var offset = block.address - address
    var length = block.bytes
    val before = gaps.lowerEntry(offset)
    if (before != null && before.getKey + before.getValue == offset) {
      offset = before.getKey
      length += before.getValue
    }
    val after = gaps.higherEntry(offset)
    if (after != null && after.getKey == offset + length) {
      gaps.remove(after.getKey)
      length += after.getValue
    }
    gaps.put(offset, length)
  }

  def close(): Unit = region.close()
}
