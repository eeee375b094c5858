package org.apache.spark.sql.slackwater.process

import java.util.concurrent.ConcurrentHashMap

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.slackwater.protocol.{KnownRead, RelationRead}

/** What binds have said of reads that come again: by which indexes a session may read a relation
  * without a bind.
  *
  * It counts as long as the catalog has not changed and no errors were committed since before that
  * bind, and for a second at most: so each session is heard of, and hears, now and then. Thread-safe.
  *
  * @param moment
  *   of the coordinator now; None: it has to be asked
  * @param isHeld
  *   whether its process lives, after all that `moment` has said
  * @param clockNs
  *   a steady clock
  */
private[process] final class KnownReads(
    moment: () => Option[Moment],
    isHeld: () => Boolean,
    clockNs: () => Long
) {
  import KnownReads._

  private val known = new ConcurrentHashMap[(String, RelationRead), Kept]()

  /** The moment before a bind, which is told to `keep`. */
  def before: Option[Moment] = moment()

  /** Remembers what a bind answered, if it says that reads may come again. */
  def keep(session: String, wanted: Seq[RelationRead], before: Moment, answer: JsonNode): Unit =
    if (answer.path("again").asBoolean) {
      if (known.size > most) known.clear()
      val bytes = answer.get("result_bytes").asLong
      wanted.zipWithIndex.foreach { case (read, i) =>
        val offers = answer.get("relations").get(i).path("indexes")
        known.put((session, read), Kept(before, offers, bytes, clockNs()))
      }
    }

  /** A read of the session that has just begun; None: it has to be bound. */
  def find(session: String, wanted: Seq[RelationRead]): Option[KnownRead] =
    moment().flatMap { now =>
      val found = wanted.flatMap(read => Option(known.get((session, read)))).filter(counts(_, now))
      Option.when(found.nonEmpty && found.size == wanted.size) {
        KnownRead(
          now.readTs,
          found.map(_.offers),
          found.map(_.resultBytes).min,
          () => moment().exists(isSame(_, now)) && isHeld()
        )
      }
    }

  /** Forgets a session, which may have other settings from now on. */
  def forget(session: String): Unit = {
    val _ = known.keySet.removeIf(_._1 == session)
  }

  private def counts(kept: Kept, now: Moment): Boolean =
    isSame(kept.before, now) && clockNs() - kept.sinceNs < longestNs
}

private object KnownReads {

  /** So much is known at once. */
  private val most = 10000

  private val longestNs = 1000L * 1000 * 1000

  private final case class Kept(
      before: Moment,
      offers: JsonNode,
      resultBytes: Long,
      sinceNs: Long
  )

  private def isSame(one: Moment, other: Moment): Boolean =
    one.revision == other.revision && one.errors == other.errors
}
