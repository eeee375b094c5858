package org.apache.spark.sql.slackwater.process

import java.util.concurrent.{LinkedBlockingQueue, ScheduledExecutorService, TimeUnit}
import java.util.concurrent.atomic.AtomicBoolean

import scala.jdk.CollectionConverters._

/** What waits for a little to be sent with what comes after it. Thread-safe.
  *
  * @param sender
  *   whose thread sends, so long after the first that waits
  * @param most
  *   so many wait; what comes besides is forgotten
  */
private[slackwater] final class Lingering[A](
    sender: => ScheduledExecutorService,
    afterMs: Long,
    most: Int = Int.MaxValue
)(send: Seq[A] => Unit) {
  private val waiting = new LinkedBlockingQueue[A](most)
  private val sending = new AtomicBoolean

  def add(each: A): Unit = {
    waiting.offer(each)
    if (!sending.getAndSet(true)) {
      val _ = sender.schedule((() => flush()): Runnable, afterMs, TimeUnit.MILLISECONDS)
    }
  }

  /** All that waits, which is not sent any more. */
  def take(): Seq[A] = {
    val batch = new java.util.ArrayList[A]()
    waiting.drainTo(batch)
    batch.asScala.toSeq
  }

  /** Sends all that waits. */
  def flush(): Unit = {
    sending.set(false)
    val batch = take()
    if (batch.nonEmpty) send(batch)
  }
}
