package org.apache.spark.sql.slackwater.bridge

import java.util.Base64

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.slackwater.programs.SourceColumns
import org.apache.spark.sql.slackwater.protocol.{Json, Wire}
import org.apache.spark.sql.slackwater.scan.PartScan
import org.apache.spark.sql.types.StructType

/** The updates of a collection that a tick reads. */
private[slackwater] final case class DeltaInput(
    name: String,
    parts: Seq[JsonNode],
    lower: Option[Long],
    upper: Option[Long]
)

/** The updates of parts in the driver's memory, those used last, up to a share of it.
  *
  * Parts never change, so nothing here gets old.
  */
private[slackwater] final class PartRows(limitBytes: Long) {
  import PartRows._

  private val entries = new java.util.LinkedHashMap[Key, Entry](64, 0.75f, true)
  private var bytes = 0L

  def find(key: Key): Option[IndexedSeq[UnsafeRow]] = synchronized {
    Option(entries.get(key)).map(_.rows)
  }

  def add(key: Key, rows: IndexedSeq[UnsafeRow]): Unit = synchronized {
    val size = 256L + rows.iterator.map(_.getSizeInBytes + 48L).sum
    if (size <= limitBytes) {
      Option(entries.put(key, Entry(rows, size))).foreach(old => bytes -= old.bytes)
      bytes += size
      val oldest = entries.values.iterator
      while (bytes > limitBytes && oldest.hasNext) {
        bytes -= oldest.next().bytes
        oldest.remove()
      }
    }
  }
}

private[slackwater] object PartRows {
  def ofDriver: PartRows = new PartRows(Runtime.getRuntime.maxMemory / 8)

  type Key = (String, Long, String)

  private final case class Entry(rows: IndexedSeq[UnsafeRow], bytes: Long)
}

/** Reads parts through the rows that are kept of them. */
private[slackwater] final class PartReader(session: SparkSession, parts: PartRows) {

  /** The rows of each part, with the columns that are wanted, and the update columns.
    *
    * `origin` is where the ids of parts come from.
    */
  def rowsOf(in: DeltaInput, wanted: SourceColumns, origin: String): Seq[IndexedSeq[UnsafeRow]] =
    in.parts.map { part =>
      val id = part.path("id").asLong(-1L)
      val key = (origin, id, wanted.storedText)
      val known = if (id >= 0) parts.find(key) else None
      known.getOrElse {
        val rows = load(in, wanted.stored, part)
        if (id >= 0) parts.add(key, rows)
        rows
      }
    }

  private def load(in: DeltaInput, kept: StructType, part: JsonNode): IndexedSeq[UnsafeRow] =
    if (part.has("inline")) {
      val stream = Base64.getDecoder.decode(part.get("inline").asText)
      Wire.decode(Iterator(stream), kept).toIndexedSeq
    } else {
      val relation = Json.obj()
      relation.putArray("files").add(part.get("file"))
      val scan = PartScan.updates(session, in.name, StructType(kept.dropRight(2)), relation)
      val plan = Dataset.ofRows(session, scan).queryExecution.executedPlan
      plan.executeCollect().iterator.map(_.asInstanceOf[UnsafeRow]).toIndexedSeq
    }
}

private[slackwater] object PartReader {
  def input(node: JsonNode): DeltaInput = DeltaInput(
    node.get("name").asText,
    node.get("parts").elements.asScala.toIndexedSeq,
    Wire.longOption(node.get("lower")),
    Wire.longOption(node.get("upper"))
  )

  /** The updates with `lower <= __time < upper`.
    *
    * @param at
    *   the position of the time
    */
  def within(
      in: DeltaInput,
      at: Int,
      rows: Seq[IndexedSeq[UnsafeRow]]
  ): Iterator[UnsafeRow] =
    rows.iterator.flatMap(_.iterator).filter { row =>
      val time = row.getLong(at)
      in.lower.forall(_ <= time) && in.upper.forall(time < _)
    }
}
