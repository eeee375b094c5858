package org.apache.spark.sql.slackwater.bridge

import scala.collection.mutable
import scala.util.Try
import scala.util.control.ControlThrowable

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.protocol.{Errors, Json, Wire}
import org.apache.spark.sql.slackwater.scan.{
  CollectionIndexes,
  KeyedUpdates,
  LocalIndex,
  NegativeMultiplicity
}
import org.apache.spark.sql.slackwater.values.Stored
import org.apache.spark.sql.slackwater.write.{InlineLimit, RowSink, Written, WrittenFile}
import org.apache.spark.sql.types.StructType

/** All rows of an index at one time, each as often as it is there: few in memory, many in a file.
  *
  * @param few
  *   more rows, or bytes of them, go into a file below `directory`
  * @param mostRows
  *   that a file may have, and updates of the index that are gone through
  * @param mostBytes
  *   of the rows of a file, as they are in memory
  */
private[bridge] final case class IndexRows(
    directory: Option[String],
    few: InlineLimit,
    mostRows: Long,
    mostBytes: Long
) {

  /** The rows that the updates before `below` (ms) make, while the contents at `asOf` are kept; None:
    * they are not kept, or the rows are too many. Few are an Arrow IPC stream, of a file there is a
    * description. Ends with the thread's interruption, and leaves no file then.
    */
  def of(
      session: SparkSession,
      program: String,
      asOf: Long,
      below: Long
  ): Option[Either[String, Array[Byte]]] =
    for {
      index <- CollectionIndexes.find(program)
      found <- written(session, index, asOf, below)
      columns = Stored.columns(index.columns)
    } yield found.files.headOption
      .map(IndexRows.described(_, columns))
      .toLeft(found.inline.getOrElse(Wire.encode(Iterator.empty, columns)))

  private def written(
      session: SparkSession,
      index: LocalIndex,
      asOf: Long,
      below: Long
  ): Option[Written] = {
    val target = directory.getOrElse("")
    val sink = RowSink
      .create(session, Stored.columns(index.columns), target, IndexRows.prefix, few)
      .open(0)
    val rows = new CountedRows(sink.write)
    try {
      // It may have forgotten what was before the time at which it was complete.
      val found = Try(index.allBefore(asOf, below, mostRows)(rows)).getOrElse(false)
      if (found) Some(sink.commit())
      else {
        sink.abort()
        None
      }
    } catch {
      case IndexRows.TooMany =>
        sink.abort()
        None
      case error: Throwable =>
        sink.abort()
        throw error
    }
  }

  /** Sums the updates of one key at a time. */
  private[bridge] final class CountedRows(write: UnsafeRow => Unit) extends KeyedUpdates {
    private val sums = mutable.LinkedHashMap.empty[UnsafeRow, Long]
    private var ofKey = 0L
    private var rows = 0L
    private var bytes = 0L

    override def add(row: UnsafeRow, diff: Long): Unit = sums.get(row) match {
      case Some(sum) => sums.update(row, sum + diff)
      case None      =>
        ofKey += row.getSizeInBytes
        if (ofKey > IndexRows.mostOfKey) throw IndexRows.TooMany
        sums.update(row.copy(), diff)
    }

    override def endKey(): Unit = {
      checkInterruption()
      sums.foreach { case (row, sum) =>
        if (sum < 0) throw NegativeMultiplicity("a row of a collection")
        account(row, sum)
        var left = sum
        while (left > 0) {
          checkInterruption()
          write(row)
          left -= 1
        }
      }
      sums.clear()
      ofKey = 0L
    }

    private def checkInterruption(): Unit =
      if (Thread.interrupted()) throw Errors.user("SLACKWATER_CANCELED")

    private def account(row: UnsafeRow, times: Long): Unit = {
      rows += times
      bytes += times * row.getSizeInBytes
      val isFew = rows <= few.rows && bytes <= few.bytes
      if (!isFew && (directory.isEmpty || rows > mostRows || bytes > mostBytes))
        throw IndexRows.TooMany
    }
  }
}

private[bridge] object IndexRows {

  /** There are more rows than are wanted, or too many of one key to be in memory. */
  private object TooMany extends ControlThrowable

  /** So many bytes of rows with one key are in memory at once. */
  private val mostOfKey = 64L << 20

  private val prefix = "peek"

  /** So many are gone through for rows that have to be few. */
  private val mostUpdates = 1000000L

  /** See `Engine.take_all` of the coordinator; `stash` is null where no file may be written. */
  def wanted(json: JsonNode): IndexRows = {
    val few = json.get("limits")
    val stash = Option(json.get("stash")).filterNot(_.isNull)
    val many = stash.map(_.get("limits"))
    IndexRows(
      stash.map(_.get("directory").asText),
      InlineLimit(few.get("rows").asLong, few.get("bytes").asLong),
      many.fold(mostUpdates)(_.get("rows").asLong),
      many.fold(0L)(_.get("bytes").asLong)
    )
  }

  /** As JSON, with the schema of its rows. */
  private def described(file: WrittenFile, schema: StructType): String =
    Json.mapper.writeValueAsString(file.describe(Json.obj()).put("schema", schema.json))
}
