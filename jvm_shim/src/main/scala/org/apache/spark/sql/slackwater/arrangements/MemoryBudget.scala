package org.apache.spark.sql.slackwater.arrangements

import java.nio.file.Path
import java.util.concurrent.atomic.AtomicLong

/** `owner` wants more memory than is left to it. Whoever catches it decides what is said to whom. */
final class ArrangementTooLarge(
    val owner: String,
    val wantedBytes: Long,
    val usedBytes: Long,
    val limitBytes: Long
) extends RuntimeException(
      s"$owner wants $wantedBytes bytes; of $limitBytes bytes $usedBytes are in use"
    )

/** How much may be in files below `directory`, which is made when it is needed. */
final case class Spill(limitBytes: Long, directory: Path)

/** How much memory the arrangements of a replica may take together, and the memory itself. What no
  * longer fits is in mapped files, as far as `spill` goes.
  *
  * Any number of threads may use it.
  */
final class MemoryBudget(limitBytes: Long, spill: Option[Spill] = None) {
  private val memory = new Slabs(SystemMemory, limitBytes)
  @volatile private var memoryAndFiles = (limitBytes, spill.fold(0L)(_.limitBytes))
  private val files = spill.map(to => new Slabs(new MappedFiles(to.directory), to.limitBytes))

  /** Throws [[ArrangementTooLarge]] and takes nothing. */
  private[arrangements] def allocate(bytes: Long, owner: String): Block =
    memory
      .allocate(bytes)
      .orElse(files.flatMap(_.allocate(bytes)))
      .getOrElse(throw new ArrangementTooLarge(owner, bytes, used + spilled, limit))

  /** `bytes`, but no more than a small share of the memory. */
  private[arrangements] def share(bytes: Long): Long = math.min(bytes, memoryAndFiles._1 / 16)

  private def limit: Long =
    try Math.addExact(memoryAndFiles._1, memoryAndFiles._2)
    catch { case _: ArithmeticException => Long.MaxValue }

  /** Other limits, of memory and of files, in bytes. What is in use stays. */
  def resize(memoryBytes: Long, fileBytes: Long): Unit = {
    memoryAndFiles = (memoryBytes, fileBytes)
    memory.resize(memoryBytes)
    files.foreach(_.resize(fileBytes))
  }

  /** Of memory and of files, in bytes. */
  def limits: (Long, Long) = memoryAndFiles

  /** Of memory, in bytes. */
  def used: Long = memory.used

  /** Of files, in bytes. */
  def spilled: Long = files.fold(0L)(_.used)

  /** What is reserved of the address space, in bytes. */
  private[arrangements] def reserved: Long = memory.reserved + files.fold(0L)(_.reserved)
}

/** What one arrangement has of a budget. */
private[arrangements] final class Allotment(budget: MemoryBudget, val owner: String) {
  private val held = new AtomicLong

  def bytes: Long = held.get

  /** See `MemoryBudget.share`. */
  def share(bytes: Long): Long = budget.share(bytes)

  /** At least `bytes` of memory, with arbitrary contents.
    *
    * Throws [[ArrangementTooLarge]], and then holds what it held before.
    */
  def allocate(bytes: Long): Block = {
    val block = budget.allocate(Slabs.wholePages(bytes), owner)
    held.addAndGet(block.bytes)
    block
  }

  def free(block: Block): Unit = {
    block.slab.slabs.free(block)
    held.addAndGet(-block.bytes)
  }
}
