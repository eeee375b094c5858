package org.apache.spark.sql.slackwater.process

import java.io.IOException
import java.lang.invoke.VarHandle
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.channels.FileChannel
import java.nio.file.{Files, Path, Paths, StandardOpenOption}

import scala.util.Try

import org.apache.spark.internal.Logging

/** What the coordinator says without being asked, at one moment at which it leads.
  *
  * @param revision
  *   of its catalog
  * @param errors
  *   how many commits with errors of collections have begun, all of which are over
  * @param readTs
  *   the read timestamp of its oracle (ms)
  */
private[process] final case class Moment(revision: Long, errors: Long, readTs: Long)

/** The mark of a coordinator of this driver, in a file that both have in memory. Thread-safe.
  *
  * The file has six words: the number of the catalog's changes, odd while one becomes visible; until
  * when the coordinator leads, by the steady clock (ns) and by the wall clock (ms); the read timestamp
  * of the oracle (ms), negative before there is one; and how many commits with errors have begun, and
  * are over. The coordinator has it locked as long as it lives.
  */
private[process] final class LeaderMark private (memory: ByteBuffer, channel: FileChannel) {
  import LeaderMark._

  /** The revision of the catalog now; None: it is just changing, or another coordinator may lead. */
  def revision: Option[Long] = {
    VarHandle.fullFence()
    val number = word(0)
    val leads = word(steadyNs) - System.nanoTime > 0 && word(wallMs) > System.currentTimeMillis
    VarHandle.fullFence()
    Option.when(leads && number % 2 == 0)(number)
  }

  /** None: the same, or errors are just being committed, or there is no oracle yet. */
  def moment: Option[Moment] = revision.flatMap { now =>
    val (added, time, adding) = (word(errorsAdded), word(oracle), word(errorsAdding))
    Option.when(added == adding && time >= 0)(Moment(now, adding, time))
  }

  /** Whether the coordinator's process lives. One that was killed has lost its lock before anybody
    * sees it dead, and takes its place.
    */
  def isHeld: Boolean = synchronized {
    try {
      val found = channel.tryLock(0L, Long.MaxValue, true)
      if (found != null) found.release()
      found == null
    } catch { case _: IOException => false }
  }

  private def word(index: Int): Long = memory.getLong(index * wordBytes)
}

private[process] object LeaderMark extends Logging {
  private val steadyNs = 1
  private val wallMs = 2
  private val oracle = 3
  private val errorsAdding = 4
  private val errorsAdded = 5
  private val words = 6
  private val wordBytes = 8

  /** The coordinator has begun, and its lease ends, that near to now. */
  private val aboutNowNs = 600L * 1000 * 1000 * 1000

  /** The mark in `file`; None where it cannot be read: then the coordinator is asked each time. */
  def of(file: String): Option[LeaderMark] =
    if (file.isEmpty) None
    else
      try {
        val path = Paths.get(file)
        val found = opened(path)
        // Nobody else needs its name, and who is killed could not remove it.
        Try(Files.deleteIfExists(path))
        if (found.isEmpty) logWarning(s"The mark of the coordinator has another clock: $file")
        found
      } catch {
        case e: IOException =>
          logWarning(s"The mark of the coordinator cannot be read: $file", e)
          None
      }

  private def opened(path: Path): Option[LeaderMark] = {
    val channel = FileChannel.open(path, StandardOpenOption.READ)
    val memory = channel
      .map(FileChannel.MapMode.READ_ONLY, 0L, (words * wordBytes).toLong)
      .order(ByteOrder.nativeOrder)
    val sinceNs = memory.getLong(steadyNs * wordBytes) - System.nanoTime
    if (math.abs(sinceNs) < aboutNowNs) Some(new LeaderMark(memory, channel))
    else {
      channel.close()
      None
    }
  }
}
