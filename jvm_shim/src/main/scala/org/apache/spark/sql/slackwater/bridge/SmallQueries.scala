package org.apache.spark.sql.slackwater.bridge

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.memory.SparkOutOfMemoryError
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  Alias,
  AttributeReference,
  AttributeSet,
  Expression,
  Literal,
  SubqueryExpression
}
import org.apache.spark.sql.catalyst.planning.PhysicalOperation
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project}
import org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.slackwater.scan.{InlineRows, LocalRows, SlotRows}
import org.apache.spark.sql.types.{StructField, StructType}

/** What came of a small query. */
private[slackwater] sealed trait SmallAnswer
private[slackwater] object SmallAnswer {
  final case class Rows(rows: Seq[InternalRow], schema: StructType) extends SmallAnswer

  /** A part is not in memory, and came without its rows. */
  case object PartMissing extends SmallAnswer

  /** What the query reads is too much for the driver's memory. */
  case object TooLarge extends SmallAnswer
}

/** Queries over so few updates that they are held and computed in the driver.
  *
  * Of each input only those columns are held that the query needs.
  */
private[slackwater] final class SmallQueries(
    val session: SparkSession,
    parts: PartRows,
    analyze: String => LogicalPlan
) {
  import SmallQueries._

  private val reader = new PartReader(session, parts)
  private val prepared = new java.util.LinkedHashMap[Key, Prepared](64, 0.75f, true) {
    override def removeEldestEntry(eldest: java.util.Map.Entry[Key, Prepared]): Boolean =
      size > plansKept
  }

  def run(text: String, request: JsonNode): SmallAnswer = {
    val inputs = request.get("views").elements.asScala.map(PartReader.input).toSeq
    val query = prepare(text, inputs)
    if (inputs.map(in => in.sizeBytes(query.kept(in.name))).sum > parts.queryLimitBytes) {
      SmallAnswer.TooLarge
    } else {
      val origin = request.get("origin").asText
      val loaded = inputs.map(in => reader.rowsOf(in, query.kept(in.name), origin))
      if (loaded.exists(_.isEmpty)) SmallAnswer.PartMissing
      else {
        val slots = inputs.zip(loaded.flatten).map { case (in, rows) =>
          in.name -> PartReader.within(in, query.kept(in.name).length - 2, rows)
        }
        answer(text, inputs, query, slots.toMap)
      }
    }
  }

  private def answer(
      text: String,
      inputs: Seq[SmallInput],
      query: Prepared,
      slots: Map[String, () => Iterator[InternalRow]]
  ): SmallAnswer =
    query.compiled match {
      case Some(ready) =>
        try SmallAnswer.Rows(ready.run(slots), ready.schema)
        catch {
          // One task holds the memory of all operators at once; a job has a task for each stage.
          case _: SparkOutOfMemoryError =>
            val asJob = query.copy(compiled = None)
            prepared.synchronized(prepared.put(keyOf(text, inputs), asJob))
            answer(text, inputs, asJob, slots)
        }
      case None =>
        val filled = over(text, inputs, query.kept) { (in, output) =>
          InlineRows(in.name, output, slots(in.name)().toIndexedSeq)
        }
        val plan = session.sessionState.executePlan(filled).executedPlan
        val rows = LocalRows.of(plan).getOrElse(plan.executeCollect())
        SmallAnswer.Rows(rows.toSeq, plan.schema)
    }

  private def keyOf(text: String, inputs: Seq[SmallInput]): Key =
    Key(text, inputs.map(in => (in.name, in.schemaJson)))

  private def prepare(text: String, inputs: Seq[SmallInput]): Prepared = {
    val key = keyOf(text, inputs)
    prepared.synchronized(Option(prepared.get(key))).getOrElse {
      val leaf = (in: SmallInput, output: Seq[AttributeReference]) => SlotRows(in.name, output)
      val whole = inputs.map(in => in.name -> in.schema).toMap
      val kept = needed(session, over(text, inputs, whole)(leaf), inputs)
      val made = Prepared(kept, CompiledQuery.of(session, over(text, inputs, kept)(leaf)))
      prepared.synchronized(prepared.put(key, made))
      made
    }
  }

  /** The analyzed query, with a leaf of the columns `kept` in the place of each input. */
  private def over(text: String, inputs: Seq[SmallInput], kept: Map[String, StructType])(
      leaf: (SmallInput, Seq[AttributeReference]) => LogicalPlan
  ): LogicalPlan = session.synchronized {
    inputs.foreach { in =>
      val output = toAttributes(kept(in.name))
      val plan = widened(in.schema, leaf(in, output), output)
      Dataset.ofRows(session, plan).createOrReplaceTempView(in.name)
    }
    try analyze(text)
    finally inputs.foreach(in => session.catalog.dropTempView(in.name))
  }
}

private object SmallQueries {
  val plansKept = 512

  final case class Key(text: String, inputs: Seq[(String, String)])

  /** A query that has been planned: which columns of each input it needs, and its compiled form. */
  final case class Prepared(kept: Map[String, StructType], compiled: Option[CompiledQuery])

  /** The columns of each input that the query reads; the update columns are always among them. */
  def needed(
      session: SparkSession,
      plan: LogicalPlan,
      inputs: Seq[SmallInput]
  ): Map[String, StructType] = {
    val optimized = session.sessionState.executePlan(plan).optimizedPlan
    val subqueries = optimized.exists(_.expressions.exists(SubqueryExpression.hasSubquery))
    val read = reads(optimized)
    inputs.map { in =>
      val updates = in.schema.takeRight(2).map(_.name).toSet
      val names = updates ++ read.filter(_._1 == in.name).flatMap(_._2)
      in.name -> (if (subqueries) in.schema else StructType(in.schema.filter(f => names(f.name))))
    }.toMap
  }

  private def reads(plan: LogicalPlan): Seq[(String, Seq[String])] = plan match {
    case PhysicalOperation(columns, conditions, slot: SlotRows) =>
      val used = AttributeSet(columns ++ conditions)
      Seq(slot.name -> slot.output.filter(used.contains).map(_.name))
    case _ => plan.children.flatMap(reads)
  }

  /** `plan` with all columns of `schema`; nobody reads those that are not in `output`. */
  private def widened(
      schema: StructType,
      plan: LogicalPlan,
      output: Seq[AttributeReference]
  ): LogicalPlan =
    if (output.length == schema.length) plan
    else {
      val byName = output.map(a => a.name -> a).toMap
      Project(
        schema.map(f => byName.getOrElse(f.name, Alias(unread(f), f.name)())),
        plan
      )
    }

  /** In the place of a column that nobody reads. Not read, because the optimizer knew the answer
    * from the column's nullability: what stands there must not say otherwise.
    */
  private def unread(field: StructField): Expression =
    if (field.nullable) Literal(null, field.dataType) else Literal.default(field.dataType)
}
