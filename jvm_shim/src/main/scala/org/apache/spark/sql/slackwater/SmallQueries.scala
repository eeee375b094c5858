package org.apache.spark.sql.slackwater

import java.util.Base64

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes
import org.apache.spark.sql.classic.{Dataset, SparkSession}
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
}

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
    if (size <= limitBytes / 2) {
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
  type Key = (String, Long, String)

  private final case class Entry(rows: IndexedSeq[UnsafeRow], bytes: Long)
}

/** Queries over so few updates that they are held and computed in the driver. */
private[slackwater] final class SmallQueries(
    val session: SparkSession,
    analyze: String => LogicalPlan
) {
  import SmallQueries._

  private val parts = new PartRows(Runtime.getRuntime.maxMemory / 8)
  private val compiled = new java.util.LinkedHashMap[Key, Option[CompiledQuery]](64, 0.75f, true) {
    override def removeEldestEntry(
        eldest: java.util.Map.Entry[Key, Option[CompiledQuery]]
    ): Boolean = size > plansKept
  }

  /** The rows and their schema; None when a part is not in memory and came without its rows. */
  def run(text: String, request: JsonNode): Option[(Seq[InternalRow], StructType)] = {
    val inputs = request.get("views").elements.asScala.map(input).toSeq
    val loaded = inputs.map(in => rowsOf(in, request.get("origin").asText))
    if (loaded.exists(_.isEmpty)) None
    else {
      val slots = inputs.zip(loaded.flatten).map { case (in, rows) => in.name -> within(in, rows) }
      Some(answer(text, inputs, slots.toMap))
    }
  }

  private def answer(
      text: String,
      inputs: Seq[SmallInput],
      slots: Map[String, () => Iterator[InternalRow]]
  ): (Seq[InternalRow], StructType) =
    query(text, inputs) match {
      case Some(ready) => (ready.run(slots), ready.schema)
      case None        =>
        val filled = over(text, inputs) { in =>
          InlineRows(in.name, toAttributes(in.schema), slots(in.name)().toIndexedSeq)
        }
        val plan = session.sessionState.executePlan(filled).executedPlan
        (LocalRows.of(plan).getOrElse(plan.executeCollect()).toSeq, plan.schema)
    }

  private def query(text: String, inputs: Seq[SmallInput]): Option[CompiledQuery] = {
    val key = Key(text, inputs.map(in => (in.name, in.schemaJson)))
    compiled.synchronized(Option(compiled.get(key))).getOrElse {
      val plan = over(text, inputs)(in => SlotRows(in.name, toAttributes(in.schema)))
      val made = CompiledQuery.of(session, plan)
      compiled.synchronized(compiled.put(key, made))
      made
    }
  }

  /** The analyzed query, with a leaf in the place of each input. */
  private def over(text: String, inputs: Seq[SmallInput])(
      leaf: SmallInput => LogicalPlan
  ): LogicalPlan = session.synchronized {
    inputs.foreach(in => Dataset.ofRows(session, leaf(in)).createOrReplaceTempView(in.name))
    try analyze(text)
    finally inputs.foreach(in => session.catalog.dropTempView(in.name))
  }

  private def rowsOf(in: SmallInput, origin: String): Option[Seq[IndexedSeq[UnsafeRow]]] = {
    val found = in.parts.map { part =>
      val key = (origin, part.path("id").asLong(-1L), in.schemaJson)
      val known = if (key._2 >= 0) parts.find(key) else None
      known.orElse {
        val rows = load(in, part)
        if (key._2 >= 0) rows.foreach(parts.add(key, _))
        rows
      }
    }
    if (found.forall(_.isDefined)) Some(found.flatten) else None
  }

  private def load(in: SmallInput, part: JsonNode): Option[IndexedSeq[UnsafeRow]] =
    if (part.has("inline")) {
      val stream = Base64.getDecoder.decode(part.get("inline").asText)
      Some(Wire.decode(Iterator(stream), in.schema).toIndexedSeq)
    } else
      Option(part.get("file")).map { file =>
        val relation = Json.obj()
        relation.putArray("files").add(file)
        val columns = StructType(in.schema.dropRight(2))
        val scan = PartScan.updates(session, in.name, columns, relation)
        val plan = Dataset.ofRows(session, scan).queryExecution.executedPlan
        plan.executeCollect().iterator.map(_.asInstanceOf[UnsafeRow]).toIndexedSeq
      }
}

private object SmallQueries {
  val plansKept = 512

  final case class Key(text: String, inputs: Seq[(String, String)])

  def input(node: JsonNode): SmallInput = SmallInput(
    node.get("name").asText,
    node.get("schema").asText,
    node.get("parts").elements.asScala.toIndexedSeq,
    Wire.longOption(node.get("lower")),
    Wire.longOption(node.get("upper")),
    Wire.longOption(node.get("advance_to"))
  )

  /** The updates with `lower <= __time < upper`, their times raised to `advanceTo`. */
  def within(in: SmallInput, rows: Seq[IndexedSeq[UnsafeRow]]): () => Iterator[InternalRow] = {
    val at = in.schema.length - 2
    def wanted(row: UnsafeRow): Boolean = {
      val time = row.getLong(at)
      in.lower.forall(_ <= time) && in.upper.forall(time < _)
    }
    () => {
      val chosen = rows.iterator.flatMap(_.iterator).filter(wanted)
      in.advanceTo.fold(chosen: Iterator[InternalRow])(to => raised(in.schema, to, chosen))
    }
  }

  private def raised(
      schema: StructType,
      to: Long,
      rows: Iterator[UnsafeRow]
  ): Iterator[InternalRow] = {
    val at = schema.length - 2
    rows.map { row =>
      val copy = row.copy()
      copy.setLong(at, math.max(to, row.getLong(at)))
      copy
    }
  }
}
