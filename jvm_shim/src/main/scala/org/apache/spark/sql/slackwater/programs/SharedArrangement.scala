package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.slackwater.arrangements.{Arrangement, ArrangementTooLarge, Batch}

/** A loaded arrangement that programs share. Thread-safe.
  *
  * Its lock is held while updates are copied in and while segments are merged, never during a job.
  */
private[slackwater] final class SharedArrangement(val arrangement: Arrangement) {
  private var isClosed = false

  /** Brings it to `upper` (ms), if it is not there yet; its upper afterwards.
    *
    * `updates` gives all those from a time on. Throws ArrangementTooLarge, and has changed nothing.
    */
  def advance(upper: Long)(updates: Long => Batch): Long = synchronized {
    if (arrangement.upper < upper) arrangement.append(updates(arrangement.upper), upper)
    arrangement.upper
  }

  def compact(since: Long): Unit = synchronized {
    if (!isClosed) arrangement.allowCompaction(since)
  }

  /** Merges segments that are due. Where there is no room for that they stay as they are, and are
    * read as before.
    */
  def maintain(): Unit = synchronized {
    if (!isClosed)
      try { val _ = arrangement.maintain(SharedArrangement.rowsPerTick) }
      catch { case _: ArrangementTooLarge => }
  }

  def close(): Unit = synchronized {
    isClosed = true
    arrangement.close()
  }
}

private[slackwater] object SharedArrangement {

  /** So many rows are moved in one tick for tidiness' sake. */
  val rowsPerTick = 65536
}
