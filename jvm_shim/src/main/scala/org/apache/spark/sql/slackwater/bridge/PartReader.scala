package org.apache.spark.sql.slackwater.bridge

import java.util.Base64

import scala.jdk.CollectionConverters._
import scala.util.control.NoStackTrace

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.slackwater.programs.{SourceColumns, TaskRows, TickBudget}
import org.apache.spark.sql.slackwater.protocol.{Json, StreamRows, Wire}
import org.apache.spark.sql.slackwater.scan.PartScan
import org.apache.spark.sql.types.StructType

/** The updates of a collection that a tick reads. */
private[slackwater] final case class DeltaInput(
    name: String,
    parts: Seq[JsonNode],
    lower: Option[Long],
    upper: Option[Long]
)

/** Inline parts that a tick names, and the driver has not got or has no longer. */
private[bridge] final class PartsLacking(val ids: Seq[Long])
    extends RuntimeException(s"the parts ${ids.mkString(", ")} are not here")
    with NoStackTrace

/** The updates of an inline part, decoded once for whoever comes first, and at most once more for all
  * others, whatever columns they want. Thread-safe.
  */
private[bridge] final class InlinePart(stream: Array[Byte]) {
  private var isRead = false
  private var whole: Option[StreamRows] = None

  /** How often the stream was decoded. */
  @volatile var decoded = 0

  /** With these columns; None: it has not all of them. */
  def rows(columns: StructType): Option[IndexedSeq[UnsafeRow]] = synchronized {
    if (isRead) {
      val all = whole.getOrElse(Wire.decodeWhole(stream))
      if (whole.isEmpty) decoded += 1
      whole = Some(all)
      Option.when(columns.fieldNames.forall(all.schema.fieldNames.contains))(all.over(columns))
    } else {
      isRead = true
      decoded += 1
      Wire.decodeIfWhole(stream, columns)
    }
  }

  /** Bytes in the heap. */
  def size: Long =
    stream.length + synchronized(whole).fold(0L)(all => PartRows.sizeOf(all.rows))
}

/** The updates of parts in the driver's memory, those used last, up to a share of it.
  *
  * Parts never change, so nothing here gets old.
  */
private[slackwater] final class PartRows(limitBytes: Long) {
  import PartRows._

  private val entries = new java.util.LinkedHashMap[Key, Entry](64, 0.75f, true)
  private var bytes = 0L

  /** The rows of a part with the columns that `columns` names. */
  def find(key: Key, columns: String): Option[IndexedSeq[UnsafeRow]] = synchronized {
    Option(entries.get(key)).flatMap(_.rows.get(columns))
  }

  def inline(key: Key): Option[InlinePart] = synchronized {
    Option(entries.get(key)).flatMap(_.inline)
  }

  /** Keeps the part itself, in the place of what is kept of it. */
  def add(key: Key, part: InlinePart): Unit = keep(key)(_ => Entry(Some(part), Map.empty))

  /** Keeps rows of a part beside what is kept of it. */
  def add(key: Key, columns: String, rows: IndexedSeq[UnsafeRow]): Unit =
    keep(key)(known => known.copy(rows = known.rows.updated(columns, rows)))

  private def keep(key: Key)(change: Entry => Entry): Unit = synchronized {
    val known = Option(entries.get(key)).getOrElse(Entry(None, Map.empty))
    val entry = change(known).measured
    bytes -= known.bytes
    if (entry.bytes <= limitBytes) {
      entries.put(key, entry)
      bytes += entry.bytes
      val oldest = entries.values.iterator
      while (bytes > limitBytes && oldest.hasNext) {
        bytes -= oldest.next().bytes
        oldest.remove()
      }
    } else { val _ = entries.remove(key) }
  }
}

private[slackwater] object PartRows {
  def ofDriver: PartRows = new PartRows(Runtime.getRuntime.maxMemory / 8)

  /** Where ids of parts come from, and an id. */
  type Key = (String, Long)

  /** What a row takes in the heap beside its bytes. */
  val BesideRow = 48L

  private[bridge] def sizeOf(rows: IndexedSeq[UnsafeRow]): Long =
    rows.iterator.map(_.getSizeInBytes + BesideRow).sum

  /** @param rows
    *   by the columns that they have
    * @param bytes
    *   when it was measured; an inline part may have grown since
    */
  private final case class Entry(
      inline: Option[InlinePart],
      rows: Map[String, IndexedSeq[UnsafeRow]],
      bytes: Long = 0
  ) {
    def measured: Entry =
      copy(bytes = 256L + inline.fold(0L)(_.size) + rows.valuesIterator.map(sizeOf(_) + 128L).sum)
  }
}

/** Reads parts through what is kept of them. */
private[slackwater] final class PartReader(session: SparkSession, parts: PartRows) {

  /** The rows of each part, with the columns that are wanted, and the update columns.
    *
    * `origin` is where the ids of parts come from. Rows that are read of files count in `budget`.
    * Throws [[PartsLacking]].
    */
  def rowsOf(
      in: DeltaInput,
      wanted: SourceColumns,
      origin: String,
      budget: TickBudget
  ): Seq[IndexedSeq[UnsafeRow]] = {
    val found = in.parts.map { part =>
      val id = part.path("id").asLong(-1L)
      val key = Option.when(id >= 0)((origin, id))
      val known = key.flatMap(parts.find(_, wanted.storedText))
      (id, known.orElse(read(in, wanted, part, key, budget)))
    }
    val lacking = found.collect { case (id, None) => id }
    if (lacking.nonEmpty) throw new PartsLacking(lacking)
    found.flatMap(_._2)
  }

  private def read(
      in: DeltaInput,
      wanted: SourceColumns,
      part: JsonNode,
      key: Option[PartRows.Key],
      budget: TickBudget
  ): Option[IndexedSeq[UnsafeRow]] = {
    val rows =
      if (part.has("file")) Some(ofFile(in, wanted.stored, part, budget))
      else inline(part, key).flatMap(_.rows(wanted.stored))
    rows.foreach(each => key.foreach(parts.add(_, wanted.storedText, each)))
    rows
  }

  /** What comes with the tick is kept for others. */
  private def inline(part: JsonNode, key: Option[PartRows.Key]): Option[InlinePart] =
    if (part.has("inline")) {
      val brought = new InlinePart(Base64.getDecoder.decode(part.get("inline").asText))
      key.foreach(parts.add(_, brought))
      Some(brought)
    } else key.flatMap(parts.inline)

  private def ofFile(
      in: DeltaInput,
      kept: StructType,
      part: JsonNode,
      budget: TickBudget
  ): IndexedSeq[UnsafeRow] = {
    val relation = Json.obj()
    relation.putArray("files").add(part.get("file"))
    val scan = PartScan.updates(session, in.name, StructType(kept.dropRight(2)), relation)
    TaskRows.of(Dataset.ofRows(session, scan).queryExecution.executedPlan) { rows =>
      rows.map { row =>
        budget.take(row.getSizeInBytes + PartRows.BesideRow)
        row.copy()
      }.toIndexedSeq
    }
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
