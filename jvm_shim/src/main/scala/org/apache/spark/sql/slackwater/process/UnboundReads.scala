package org.apache.spark.sql.slackwater.process

import java.util.concurrent.{Executors, LinkedBlockingQueue, TimeUnit}
import java.util.concurrent.atomic.AtomicBoolean

import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.internal.Logging
import org.apache.spark.sql.slackwater.protocol.Json

/** Tells a coordinator of the reads that were made without a bind, a little after their ends.
  *
  * What cannot be told is forgotten: it is for the history of statements alone. Thread-safe.
  */
private[process] final class UnboundReads(call: ObjectNode => Unit) extends Logging {
  import UnboundReads._

  private val waiting = new LinkedBlockingQueue[Read](most)
  private val sending = new AtomicBoolean

  /** Notes a read that has ended now. */
  def add(read: ObjectNode, beganNs: Long): Unit = {
    waiting.offer(Read(read, beganNs, System.nanoTime))
    if (!sending.getAndSet(true)) {
      val _ = sender.schedule((() => flush()): Runnable, lingerMs, TimeUnit.MILLISECONDS)
    }
  }

  /** Tells of all that have ended. */
  def flush(): Unit = {
    sending.set(false)
    val batch = new java.util.ArrayList[Read]()
    waiting.drainTo(batch)
    if (!batch.isEmpty) {
      val now = System.nanoTime
      val body = Json.obj()
      val reads = body.putArray("reads")
      batch.forEach { each =>
        each.told.put("began_ago_ms", (now - each.beganNs) / 1000000)
        each.told.put("ago_ms", (now - each.endedNs) / 1000000)
        val _ = reads.add(each.told)
      }
      try call(body)
      catch { case NonFatal(e) => logDebug("Reads could not be told of", e) }
    }
  }
}

private object UnboundReads {
  private val lingerMs = 200L

  /** So many wait at most. */
  private val most = 10000

  private final case class Read(told: ObjectNode, beganNs: Long, endedNs: Long)

  private lazy val sender = Executors.newSingleThreadScheduledExecutor(
    Threads.factory("slackwater-reads")
  )
}
