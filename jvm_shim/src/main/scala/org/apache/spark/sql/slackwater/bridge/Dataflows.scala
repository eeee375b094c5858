package org.apache.spark.sql.slackwater.bridge

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.util.UUID
import java.util.concurrent.{ConcurrentHashMap, TimeUnit}
import java.util.concurrent.atomic.AtomicLong

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Try
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.SparkContext
import org.apache.spark.memory.SparkOutOfMemoryError
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  Alias,
  Attribute,
  GenericInternalRow,
  JoinedRow,
  Literal,
  UnaryMinus,
  UnsafeRow
}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project, Union}
import org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.slackwater.arrangements.ArrangementTooLarge
import org.apache.spark.sql.slackwater.binding.MzNow
import org.apache.spark.sql.slackwater.plans.{AnalyzedView, AnalyzedViews, FailurePlaces, Owner}
import org.apache.spark.sql.slackwater.plans.logical.CollectionSlot
import org.apache.spark.sql.slackwater.process.ResultSettings
import org.apache.spark.sql.slackwater.programs._
import org.apache.spark.sql.slackwater.protocol.{DataErrors, Json, Wire}
import org.apache.spark.sql.slackwater.scan.{CollectionIndexes, Consolidate, PartScan, Sources}
import org.apache.spark.sql.slackwater.scan.logical.{
  BoundParts,
  BoundScan,
  InlineRows,
  ScanIdentity,
  SlotRows
}
import org.apache.spark.sql.slackwater.values.{Canonical, Stored}
import org.apache.spark.sql.types.StructType

/** The programs that the coordinator's dataflows run, by ids.
  *
  * Calls for different programs may come from several threads; those for one come one after the
  * other.
  *
  * @param replica
  *   the one that runs them
  * @param all
  *   those of the driver, with whatever settings
  */
final class Dataflows private[bridge] (
    private[bridge] val session: SparkSession,
    private[bridge] val few: SparkSession,
    small: SparkSession,
    openRowByRow: () => SparkSession,
    reader: PartReader,
    views: AnalyzedViews,
    private[bridge] val replica: ReplicaRoom,
    all: java.util.Set[Dataflows]
) {
  private lazy val settings = ResultSettings.meaning(session)
  private val programs = new ConcurrentHashMap[String, OpenedProgram]()
  private val ticking = ConcurrentHashMap.newKeySet[String]()
  private lazy val rowByRow = openRowByRow()

  private def programOf(id: String): Program = programs.get(id).program

  /** Makes the program of a plan; its first tick begins after `asOf`. `resident`: see `Programs`.
    * `viewId` and `viewName` are those of the view that it maintains.
    *
    * What another coordinator of the same environment has opened is given back: it has ended.
    */
  def open(
      environment: String,
      coordinator: String,
      planId: String,
      programJson: String,
      viewId: String,
      viewName: String,
      asOf: Long,
      resident: Boolean
  ): String = configured {
    val json = Json.mapper.readTree(programJson)
    val made = new Programs(
      views.get(planId),
      json,
      replica.arrangements,
      environment,
      settings,
      ProgramOwner(viewId, viewName),
      asOf,
      compiled,
      resident
    ).program
    val id = s"program-${UUID.randomUUID}"
    val owner = Owner(environment, coordinator)
    all.forEach(_.closeLeftOver(owner))
    val group = s"slackwater-${UUID.randomUUID}"
    programs.put(id, OpenedProgram(made, planId, owner, group))
    made.index.foreach(CollectionIndexes.add(id, _))
    id
  }

  /** Fills what the program keeps with the contents of `inputs` at their `as_of`.
    *
    * `missed` of the request may have the updates of `sources` from `lower` on, for arrangements that
    * others have loaded; `sources` is null where these are not known. The answer is
    * `{"next_change"}`, the first time after `as_of`, in ms, at which the output changes though no
    * input does, Long.MaxValue if there is none; or `{"behind"}`, the time from which on updates are
    * missed, to be loaded with them; or `{"lacks"}`, as of a tick.
    */
  def load(programId: String, planId: String, requestJson: String): String = configured {
    val program = programOf(programId)
    val request = Json.mapper.readTree(requestJson)
    val inputs = new SnapshotInputs(views.get(planId), request)
    val asOf = request.get("as_of").asLong
    val answer =
      try {
        val missed = Option(request.get("missed")).filterNot(_.isNull).map(missedBy(program, _))
        program.load(sessionFor(request), inputs, asOf, missed) match {
          case Hydrated.Done(nextChange) => Json.obj().put("next_change", nextChange)
          case Hydrated.Behind(upper)    => Json.obj().put("behind", upper)
        }
      } catch { case lacking: PartsLacking => told(lacking) }
    Json.mapper.writeValueAsString(answer)
  }

  private def told(lacking: PartsLacking): ObjectNode = {
    val answer = Json.obj()
    val ids = answer.putArray("lacks")
    lacking.ids.foreach(ids.add)
    answer
  }

  private def missedBy(program: Program, node: JsonNode): Missed =
    Missed(
      node.get("lower").asLong,
      Option.unless(node.get("sources").isNull)(program.sources.map { case (operator, columns) =>
        operator -> deltaOf(node, columns, TickBudget.unlimited, TickBudget.unlimited)
      })
    )

  /** Nothing has changed for these programs before the times, in ms, that a JSON object has by their
    * ids. One that is closed, or computes, is passed over.
    *
    * True if some arrangements of the replica still have the same rows.
    */
  def advanced(uppersJson: String): Boolean = {
    Json.mapper.readTree(uppersJson).properties.asScala.foreach { entry =>
      Option(programs.get(entry.getKey)).foreach(_.program.advanced(entry.getValue.asLong))
    }
    replica.arrangements.areApart
  }

  /** For each arrangement of the program how many updates it keeps, and of how many keys, as JSON. */
  def sizes(programId: String): String = {
    val list = Json.mapper.createArrayNode()
    programOf(programId).sizes.foreach { case (rows, keys) => list.addArray().add(rows).add(keys) }
    Json.mapper.writeValueAsString(list)
  }

  /** The program goes on as another one, which differs in nothing but the order of its lookups. */
  def reorder(programId: String, programJson: String): Unit = configured {
    programOf(programId).reorder(Json.mapper.readTree(programJson))
  }

  /** The session in which it takes least time to read the inputs of a request. */
  private def sessionFor(request: JsonNode): SparkSession =
    if (request.get("few").asBoolean) few else session

  /** Runs a tick: four bytes with the length of a JSON text that says what was done, the text, and
    * the updates as an Arrow stream.
    *
    * It is loaded, and each part comes with its rows, or is a file, or has come before. The text is
    * `{"ended": reason}`, without updates, where the tick has taken more than it may (`TickBudget`): at
    * most `most_ms`; and `{"lacks": ids}` where parts have to come with their rows.
    * Of a program that is not resident, `before` describes the collections just before `lower`;
    * then `scanned` has the ids of those that were read, each as often as it was.
    */
  def tick(programId: String, requestJson: String): Array[Byte] =
    try {
      val opened = Option(programs.get(programId)).getOrElse(throw new TickEnded("closed"))
      inGroup(opened.group)(ticked(opened, requestJson))
    } catch {
      case ended: TickEnded      => endedBecause(ended.reason)
      case lacking: PartsLacking =>
        framed(Json.mapper.writeValueAsString(told(lacking)), Array.empty)
      case NonFatal(_) if !programs.containsKey(programId) => endedBecause("closed")
      case _: OutOfMemoryError                             => endedBecause("large")
    }

  private def endedBecause(reason: String): Array[Byte] =
    framed(Json.mapper.writeValueAsString(Json.obj().put("ended", reason)), Array.empty)

  /** Jobs are those of the call whose group the thread has, or else of the program. */
  private def inGroup[A](group: String)(body: => A): A = {
    val context = session.sparkContext
    if (context.getLocalProperty(SparkContext.SPARK_JOB_GROUP_ID) != null) body
    else {
      context.setJobGroup(group, "Slackwater", interruptOnCancel = false)
      ticking.add(group)
      try BridgeSession.inPool(session, replica.pool)(body)
      finally {
        ticking.remove(group)
        context.clearJobGroup()
      }
    }
  }

  private def ticked(opened: OpenedProgram, requestJson: String): Array[Byte] = configured {
    val program = opened.program
    val request = Json.mapper.readTree(requestJson)
    val began = System.nanoTime()
    val mostMillis = Option(request.get("most_ms")).filterNot(_.isNull).map(_.asLong)
    def budget = new TickBudget(TickBudget.ofHeap, mostMillis, () => false)
    val (read, held) = (budget, budget)
    val deltas = program.sources.map { case (operator, columns) =>
      operator -> deltaOf(request, columns, read, held)
    }
    val loaded = TimeUnit.NANOSECONDS.toMicros(System.nanoTime() - began)
    val before = Option(request.get("before")).filterNot(_.isNull)
    val inputs = before.map(new SnapshotInputs(views.get(opened.planId), _))
    val (updates, told) =
      program.tick(
        request.get("lower").asLong,
        request.get("upper").asLong,
        mostMillis,
        deltas,
        before.zip(inputs).map { case (described, each) => Before(sessionFor(described), each) }
      )
    told.put("load_micros", loaded)
    val scanned = told.putArray("scanned")
    inputs.foreach(_.scanned.foreach(scanned.add))
    framed(Json.mapper.writeValueAsString(told), encoded(updates, program.schema))
  }

  /** The output of the program's ticks is durable up to `upper`. */
  def committed(programId: String, upper: Long): Unit = programOf(programId).committed(upper)

  /** What a tick of it reads by jobs ends, too. */
  def close(programId: String): Unit = Option(programs.remove(programId)).foreach { opened =>
    CollectionIndexes.remove(programId)
    opened.program.close()
    // Spark warns of a group without jobs, and refuses when the application has ended.
    if (ticking.contains(opened.group)) session.sparkContext.cancelJobGroup(opened.group)
  }

  /** The rows of a planned view at a time, as updates at that time; if there is `recorded`, only
    * what they differ by from it.
    */
  private[bridge] def contents(planId: String, inputsJson: String, names: Seq[String]): Dataset[_] =
    configured {
      val request = Json.mapper.readTree(inputsJson)
      val chosen = sessionFor(request)
      val view = views.get(planId)
      val inputs = new SnapshotInputs(view, request)
      val rows = inputs.over(view.nodes(request.get("node").asInt))
      val columns =
        rows.output.zip(names).map { case (column, name) => Alias(Canonical(column), name)() }
      val now = Project(columns :+ Alias(Literal(1L), Wire.DiffColumn)(), rows)
      val changes = Option(request.get("recorded")).fold[LogicalPlan](now) { recorded =>
        val schema = Stored.columns(SnapshotInputs.schemaOf(recorded))
        val known = PartScan.updates(chosen, planId, schema, recorded.get("relation"))
        val diff = UnaryMinus(PartScan.attribute(known, Wire.DiffColumn), failOnError = true)
        val negated =
          Project(known.output.take(schema.length) :+ Alias(diff, Wire.DiffColumn)(), known)
        Consolidate.updates(Union(now, negated))
      }
      val time = Alias(Literal(request.get("as_of").asLong), Wire.TimeColumn)()
      val whole = Project(changes.output.init ++ Seq(time, changes.output.last), changes)
      optimized(chosen, whole).getOrElse(Dataset.ofRows(chosen, whole))
    }

  /** A row that makes the query of a planned view fail at a time: of those at the first place of the
    * plan, from its inputs up, that has any, the first in their order. It is the same for the same
    * contents.
    *
    * @param collect
    *   the rows of a query
    */
  private[bridge] def failing(planId: String, inputsJson: String)(
      collect: Dataset[_] => Array[InternalRow]
  ): Option[FailingRow] = configured {
    val request = Json.mapper.readTree(inputsJson)
    val view = views.get(planId)
    val inputs = new SnapshotInputs(view, request)
    val chosen = sessionFor(request)
    val places = new FailurePlaces(view, inputs.columns, inputs.asOf).of(request.get("node").asInt)
    new FailingRows(plan => optimized(chosen, inputs.over(plan)).map(collect)).in(places)
  }

  /** The query in a session that can plan it. */
  private def optimized(chosen: SparkSession, plan: LogicalPlan): Option[Dataset[_]] =
    Some(Dataset.ofRows(chosen, plan))
      .filter(isOptimized)
      .orElse(Some(Dataset.ofRows(rowByRow, WindowFrames(plan))).filter(isOptimized))

  /** No: a constant fails, which says nothing where there is no row to compute it for. */
  private def isOptimized(made: Dataset[_]): Boolean =
    SQLConf.withExistingConf(made.sparkSession.sessionState.conf) {
      Try(made.queryExecution.optimizedPlan).isSuccess
    }

  private[bridge] def closeAll(): Unit = programs.keySet.forEach(close(_))

  private def closeLeftOver(owner: Owner): Unit =
    programs.asScala
      .collect { case (id, old) if old.owner.isReplacedBy(owner) => id }
      .foreach(close)

  private def compiled(plan: LogicalPlan): Compiled = {
    plan.setAnalyzed()
    val asJob = new JobOverSlots(small, plan)
    CompiledQuery.of(small, plan).fold[Compiled](asJob)(new UntilItIsTooMuch(_, asJob))
  }

  /** A change of columns that nobody wants comes to nothing; what is there often comes once.
    *
    * @param read
    *   has the rows of files, `held` all updates
    */
  private def deltaOf(
      request: JsonNode,
      columns: SourceColumns,
      read: TickBudget,
      held: TickBudget
  ): Updates = {
    val updates = new Updates(held)
    Option(request.get("sources").get(columns.collection)).foreach { node =>
      val input = PartReader.input(node)
      val rows = reader.rowsOf(input, columns, request.get("origin").asText, read)
      val (time, diff) = (columns.width, columns.width + 1)
      PartReader.within(input, time, rows).foreach { row =>
        updates.add(columns.cut(row).copy(), row.getLong(time), row.getLong(diff))
      }
    }
    updates.consolidated
  }

  private def encoded(updates: Updates, schema: StructType): Array[Byte] = {
    val rows = Seq.newBuilder[InternalRow]
    updates.foreach { (row, time, diff) =>
      rows += new JoinedRow(row, new GenericInternalRow(Array[Any](time, diff)))
    }
    Wire.encode(rows.result().iterator, Wire.updateSchema(schema))
  }

  private def framed(told: String, updates: Array[Byte]): Array[Byte] = {
    val text = told.getBytes(UTF_8)
    ByteBuffer
      .allocate(4 + text.length + updates.length)
      .putInt(text.length)
      .put(text)
      .put(updates)
      .array()
  }

  private def configured[A](body: => A): A =
    try session.withActive(SQLConf.withExistingConf(session.sessionState.conf)(body))
    catch {
      case full: ArrangementTooLarge =>
        throw DataErrors.indexMemory(full.owner, full.wantedBytes, full.usedBytes, full.limitBytes)
    }
}

/** A program, who opened it, and the group of its jobs. */
private[bridge] final case class OpenedProgram(
    program: Program,
    planId: String,
    owner: Owner,
    group: String
)

/** `first`, while its memory suffices: one task holds that of all operators at once, and a job has a
  * task for each stage.
  */
private[bridge] final class UntilItIsTooMuch(first: Compiled, second: Compiled) extends Compiled {
  private var chosen = first

  override def run(
      slots: scala.collection.Map[String, () => Iterator[InternalRow]]
  ): Seq[UnsafeRow] =
    try chosen.run(slots)
    catch {
      case _: SparkOutOfMemoryError if chosen ne second =>
        chosen = second
        chosen.run(slots)
    }
}

/** A plan over slots for which one thread is not enough: it is planned anew each time. */
private[bridge] final class JobOverSlots(session: SparkSession, plan: LogicalPlan)
    extends Compiled {
  override def run(
      slots: scala.collection.Map[String, () => Iterator[InternalRow]]
  ): Seq[UnsafeRow] = {
    val filled = plan.transformUp { case slot: SlotRows =>
      InlineRows(slot.name, slot.output, slots(slot.name)().toIndexedSeq)
    }
    val physical = session.sessionState.executePlan(filled).executedPlan
    TaskRows.of(physical)(_.map(_.copy()).toIndexedSeq)
  }
}

/** The subplans of a view over the collections that a request describes, each at one time. */
private[bridge] final class SnapshotInputs(view: AnalyzedView, request: JsonNode) extends Inputs {
  val asOf: Long = request.get("as_of").asLong

  private val collections: Map[String, LogicalPlan] =
    request
      .get("inputs")
      .properties
      .asScala
      .map { entry =>
        val schema = SnapshotInputs.schemaOf(entry.getValue)
        val parts = BoundParts(entry.getValue.get("relation"), Stored.columns(schema), None)
        val identity = ScanIdentity(entry.getKey, asOf, SnapshotInputs.binds.incrementAndGet())
        val scan = BoundScan(entry.getKey, identity, toAttributes(schema), parts)
        entry.getKey -> SnapshotInputs.canonical(scan)
      }
      .toMap

  /** The collections that snapshots were made of, each as often as one reads it. */
  val scanned: mutable.ArrayBuffer[String] = mutable.ArrayBuffer.empty

  override def snapshot(node: Int): LogicalPlan = {
    view.nodes(node).foreach {
      case slot: CollectionSlot => scanned += slot.id
      case _                    =>
    }
    MzNow.at(view.snapshot(node, collections), asOf)
  }

  /** The columns of each collection, by its id. */
  def columns: Map[String, Seq[Attribute]] = collections.map { case (id, rows) =>
    id -> rows.output
  }

  /** A plan over slots, whose sums depend on no order. */
  def over(plan: LogicalPlan): LogicalPlan =
    ExactAggregate.in(MzNow.at(AnalyzedView.over(plan, collections), asOf))
}

private[bridge] object SnapshotInputs {
  def schemaOf(contents: JsonNode): StructType =
    Sources.stored(Json.schema(Json.mapper.readTree(contents.get("schema").asText)))

  /** The rows as programs get them from updates. */
  private def canonical(rows: LogicalPlan): LogicalPlan =
    Canonical.ofAll(rows.output).fold(rows) { forms =>
      Project(forms.zip(rows.output).map { case (f, column) => Alias(f, column.name)() }, rows)
    }

  /** No two of them are the same to Spark's cache. */
  val binds = new AtomicLong
}
