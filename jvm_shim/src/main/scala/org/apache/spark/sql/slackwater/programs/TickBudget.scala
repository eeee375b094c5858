package org.apache.spark.sql.slackwater.programs

import java.util.concurrent.TimeUnit

import scala.util.control.NoStackTrace

/** A tick has ended before it was done. Nothing of it counts, and it may be run again.
  *
  * @param reason
  *   `large`: it holds more than it may; `slow`: it takes longer than it may; `closed`: its program
  *   is wanted no more
  */
final class TickEnded(val reason: String)
    extends RuntimeException(s"the tick has ended: $reason")
    with NoStackTrace

/** What a tick may hold of rows and how long it may take. Not thread-safe.
  *
  * Whatever copies rows says so with `take`, and whatever looks rows up with `visit`: either throws
  * [[TickEnded]] when it is too much, or when nobody wants the tick any more.
  */
private[slackwater] final class TickBudget(
    mostBytes: Long,
    mostMillis: Option[Long],
    isClosed: () => Boolean
) {
  private val end = mostMillis.map(System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(_))
  private var held = 0L
  private var visits = 0

  def take(bytes: Long): Unit = {
    held += bytes
    if (held > mostBytes) throw new TickEnded("large")
    visit()
  }

  def giveBack(bytes: Long): Unit = held -= bytes

  def visit(): Unit = {
    visits += 1
    if (visits % TickBudget.VisitsUnseen == 0) {
      if (isClosed()) throw new TickEnded("closed")
      if (end.exists(_ - System.nanoTime() < 0)) throw new TickEnded("slow")
    }
  }
}

private[slackwater] object TickBudget {

  /** To look at a clock takes longer than to look up a row. */
  private val VisitsUnseen = 1024

  val unlimited: TickBudget = new TickBudget(Long.MaxValue, None, () => false)

  /** So much of the driver's heap a tick may hold, whatever else there is. */
  def ofHeap: Long = math.max(64L << 20, Runtime.getRuntime.maxMemory / 8)
}
