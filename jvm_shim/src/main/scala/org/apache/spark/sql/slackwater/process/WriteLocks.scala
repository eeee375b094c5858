package org.apache.spark.sql.slackwater.process

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

/** The locks of this application's statements that read and then write.
  *
  * Such a lock lasts as long as its application says that it lives: `renew` tells so for the holds
  * that it is given. A process that is stopped says nothing, and keeps no others from writing.
  */
private[process] final class WriteLocks(renew: Seq[String] => Unit) {
  private val held = mutable.LinkedHashSet.empty[String]
  private var leaseMs = 0L
  private var closed = false
  private lazy val renewing = Threads.start("slackwater-locks")(run())

  /** Notes what a call ends: from then on its coordinator answers for the lock. */
  def called(path: String, body: ObjectNode): Unit = path match {
    case "/v1/write"   => forget(Seq(body.path("hold").asText))
    case "/v1/release" => forget(names(body.path("holds")))
    case "/v1/bind"    => forget(names(body.path("released")))
    case _             => ()
  }

  /** Notes the lock that an answer to a bind gives. */
  def answered(answer: JsonNode): Unit =
    if (answer.has("lease_ms") && answer.hasNonNull("hold")) {
      val _ = renewing
      synchronized {
        leaseMs = answer.get("lease_ms").asLong
        held += answer.get("hold").asText
        notifyAll()
      }
    }

  /** Another coordinator leads, which knows none of them. */
  def clear(): Unit = synchronized(held.clear())

  def close(): Unit = synchronized {
    closed = true
    notifyAll()
  }

  private def names(holds: JsonNode): Seq[String] = holds.elements.asScala.map(_.asText).toSeq

  private def forget(holds: Seq[String]): Unit = synchronized(held --= holds)

  private def run(): Unit =
    Iterator.continually(due()).takeWhile(_.isDefined).flatten.filter(_.nonEmpty).foreach(renew)

  /** The locks to renew, after a third of their lease; None at the end. */
  private def due(): Option[Seq[String]] = synchronized {
    while (held.isEmpty && !closed) wait()
    if (!closed) wait(math.max(1L, leaseMs / 3))
    Option.unless(closed)(held.toSeq)
  }
}
