package org.apache.spark.sql.slackwater.bridge

import java.util.Base64

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.slackwater.protocol.{Json, Wire}
import org.apache.spark.sql.slackwater.scan.{PartScan, Sources}
import org.apache.spark.sql.types.StructType

/** One named relation of updates that a small query reads. */
private[slackwater] final case class SmallInput(
    name: String,
    schemaJson: String,
    parts: Seq[JsonNode],
    lower: Option[Long],
    upper: Option[Long],
    advanceTo: Option[Long]
) {

  /** With the update columns, as Spark computes with them. */
  lazy val schema: StructType =
    Wire.updateSchema(Sources.stored(Json.schema(Json.mapper.readTree(schemaJson))))

  /** About so much memory the columns `kept` of the files take as rows. */
  def sizeBytes(kept: StructType): Long = {
    val row = 64L + kept.map(field => math.max(8L, field.dataType.defaultSize.toLong)).sum
    parts.map(_.path("file").path("rows").asLong).sum * row
  }
}

/** The updates of parts in the driver's memory, those used last, up to a share of it.
  *
  * Parts never change, so nothing here gets old.
  */
private[slackwater] final class PartRows(limitBytes: Long) {
  import PartRows._

  /** What one query may ask for at most, so that it does not push out its own rows. */
  val queryLimitBytes: Long = limitBytes / 2

  private val entries = new java.util.LinkedHashMap[Key, Entry](64, 0.75f, true)
  private var bytes = 0L

  def find(key: Key): Option[IndexedSeq[UnsafeRow]] = synchronized {
    Option(entries.get(key)).map(_.rows)
  }

  def add(key: Key, rows: IndexedSeq[UnsafeRow]): Unit = synchronized {
    val size = 256L + rows.iterator.map(_.getSizeInBytes + 48L).sum
    if (size <= queryLimitBytes) {
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

  /** The rows of each part, with the columns `kept`; None: the driver has not got one of them, and
    * it came without its rows.
    */
  def rowsOf(
      in: SmallInput,
      kept: StructType,
      origin: String
  ): Option[Seq[IndexedSeq[UnsafeRow]]] = {
    val columns = kept.json
    val found = in.parts.map { part =>
      val key = (origin, part.path("id").asLong(-1L), columns)
      val known = if (key._2 >= 0) parts.find(key) else None
      known.orElse {
        val rows = load(in, kept, part)
        if (key._2 >= 0) rows.foreach(parts.add(key, _))
        rows
      }
    }
    if (found.forall(_.isDefined)) Some(found.flatten) else None
  }

  private def load(
      in: SmallInput,
      kept: StructType,
      part: JsonNode
  ): Option[IndexedSeq[UnsafeRow]] =
    if (part.has("inline")) {
      val stream = Base64.getDecoder.decode(part.get("inline").asText)
      Some(Wire.decode(Iterator(stream), kept).toIndexedSeq)
    } else
      Option(part.get("file")).map { file =>
        val relation = Json.obj()
        relation.putArray("files").add(file)
        val scan = PartScan.updates(session, in.name, StructType(kept.dropRight(2)), relation)
        val plan = Dataset.ofRows(session, scan).queryExecution.executedPlan
        plan.executeCollect().iterator.map(_.asInstanceOf[UnsafeRow]).toIndexedSeq
      }
}

private[slackwater] object PartReader {
  def input(node: JsonNode): SmallInput = SmallInput(
    node.get("name").asText,
    node.get("schema").asText,
    node.get("parts").elements.asScala.toIndexedSeq,
    Wire.longOption(node.get("lower")),
    Wire.longOption(node.get("upper")),
    Wire.longOption(node.get("advance_to"))
  )

  /** The updates with `lower <= __time < upper`, their times raised to `advanceTo`.
    *
    * @param at
    *   the position of the time
    */
  def within(
      in: SmallInput,
      at: Int,
      rows: Seq[IndexedSeq[UnsafeRow]]
  ): () => Iterator[InternalRow] = {
    def wanted(row: UnsafeRow): Boolean = {
      val time = row.getLong(at)
      in.lower.forall(_ <= time) && in.upper.forall(time < _)
    }
    () => {
      val chosen = rows.iterator.flatMap(_.iterator).filter(wanted)
      in.advanceTo.fold(chosen: Iterator[InternalRow])(to => raised(at, to, chosen))
    }
  }

  private def raised(at: Int, to: Long, rows: Iterator[UnsafeRow]): Iterator[InternalRow] =
    rows.map { row =>
      val copy = row.copy()
      copy.setLong(at, math.max(to, row.getLong(at)))
      copy
    }
}
