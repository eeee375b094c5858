package org.apache.spark.sql.slackwater.process

import java.util.concurrent.Executors

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.slackwater.protocol.Json

/** Tells a coordinator of the reads that were made without a bind, a little after their ends.
  *
  * What cannot be told is forgotten: it is for the history of statements alone. Thread-safe.
  */
private[process] final class UnboundReads(tell: ObjectNode => Unit) {
  import UnboundReads._

  private val waiting = new Lingering[Read](sender, lingerMs, most)(send)

  /** Notes a read that has ended now. */
  def add(read: ObjectNode, beganNs: Long): Unit =
    waiting.add(Read(read, beganNs, System.nanoTime))

  /** Tells of all that have ended. */
  def flush(): Unit = waiting.flush()

  private def send(ended: Seq[Read]): Unit = {
    val now = System.nanoTime
    val body = Json.obj()
    val reads = body.putArray("reads")
    ended.foreach { each =>
      each.told.put("began_ago_ms", (now - each.beganNs) / 1000000)
      each.told.put("ago_ms", (now - each.endedNs) / 1000000)
      reads.add(each.told)
    }
    tell(body)
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
