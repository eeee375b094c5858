package org.apache.spark.sql.slackwater.arrangements

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

/** How much memory the arrangements of a replica may take together, and the memory itself.
  *
  * Any number of threads may use it.
  */
final class MemoryBudget(limitBytes: Long) {
  private val reserved = new AtomicLong

  private[arrangements] val slabs = new Slabs

  /** Takes `bytes` of the budget, or throws [[ArrangementTooLarge]] and takes nothing. */
  def reserve(bytes: Long, owner: String): Unit = {
    var before = reserved.get
    while (!fits(bytes, before, owner) || !reserved.compareAndSet(before, before + bytes))
      before = reserved.get
  }

  private def fits(bytes: Long, before: Long, owner: String): Boolean =
    if (bytes <= limitBytes - before) true
    else throw new ArrangementTooLarge(owner, bytes, before, limitBytes)

  def release(bytes: Long): Unit = {
    val left = reserved.addAndGet(-bytes)
    if (left < 0) throw new IllegalStateException(s"released ${-left} bytes that nobody reserved")
  }

  /** In bytes. */
  def used: Long = reserved.get
}

/** What one arrangement has of a budget. */
private[arrangements] final class Allotment(budget: MemoryBudget, val owner: String) {
  private val held = new AtomicLong

  def bytes: Long = held.get

  /** At least `bytes` of memory, with arbitrary contents.
    *
    * Throws [[ArrangementTooLarge]], and then holds what it held before.
    */
  def allocate(bytes: Long): Block = {
    val whole = Slabs.wholePages(bytes)
    budget.reserve(whole, owner)
    val block =
      try budget.slabs.allocate(whole)
      catch {
        case failure: Throwable =>
          budget.release(whole)
          throw failure
      }
    held.addAndGet(whole)
    block
  }

  def free(block: Block): Unit = {
    budget.slabs.free(block)
    held.addAndGet(-block.bytes)
    budget.release(block.bytes)
  }
}
