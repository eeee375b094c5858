package org.apache.spark.sql.slackwater.arrangements

import org.apache.spark.sql.slackwater.arrangements.Rows.Bytes

/** An arrangement as a list of updates. */
final class Model {
  import Model._

  var since = 0L
  var upper = 0L
  private var updates = Vector.empty[Entry]

  def add(more: Seq[Entry], newUpper: Long): Unit = {
    updates = updates ++ more
    upper = newUpper
  }

  /** What a scan gives. */
  def before(below: Long): Map[(Bytes, Bytes, Long), Long] = advanced(updates, below)

  /** What a lookup gives. */
  def before(below: Long, key: Bytes): Map[(Bytes, Bytes, Long), Long] =
    advanced(updates.filter(_.key == key), below)

  private def advanced(of: Seq[Entry], below: Long): Map[(Bytes, Bytes, Long), Long] =
    consolidated(
      of.filter(_.time < below).map(update => update.copy(time = math.max(since, update.time)))
    )
}

object Model {
  final case class Entry(key: Bytes, row: Bytes, time: Long, diff: Long)

  def consolidated(updates: Seq[Entry]): Map[(Bytes, Bytes, Long), Long] =
    updates
      .groupMapReduce(update => (update.key, update.row, update.time))(_.diff)(_ + _)
      .filter(_._2 != 0)
}
