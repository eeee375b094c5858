package org.apache.spark.sql.slackwater.bridge

import java.nio.file.Path
import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{ArrayNode, ObjectNode}

import org.apache.spark.sql.slackwater.arrangements.MemoryBudget
import org.apache.spark.sql.slackwater.binding.logical.AsOf
import org.apache.spark.sql.slackwater.catalog.GivenRelations
import org.apache.spark.sql.slackwater.hold.BindScope
import org.apache.spark.sql.slackwater.plans.{AnalyzedView, AnalyzedViews, KeyedCollection, Owner}
import org.apache.spark.sql.slackwater.process.{ResultSettings, SparkSessions}
import org.apache.spark.sql.slackwater.programs.{TaskRows, TickBudget, TickEnded}
import org.apache.spark.sql.slackwater.protocol.{DataErrors, Json, Wire}
import org.apache.spark.sql.slackwater.scan.{Consolidate, LeaderIndex, PartScan, Sources}
import org.apache.spark.sql.slackwater.scan.execution.DriverTask
import org.apache.spark.sql.slackwater.values.Stored
import org.apache.spark.sql.slackwater.write.{InlineLimit, RowSink, Written, WrittenFile}
import org.apache.spark.SparkContext
import org.apache.spark.scheduler.{SparkListener, SparkListenerApplicationEnd}
import org.apache.spark.internal.config.MAX_RESULT_SIZE
import org.apache.spark.sql.Row
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.catalyst.plans.logical.{
  Command,
  LogicalPlan,
  OneRowRelation,
  ParsedStatement
}
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.execution.{QueryExecution, SQLExecution}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.util.Utils

/** What the coordinator calls in the driver, over py4j. */
object Bridge {
  private val bridges = new ConcurrentHashMap[(String, ReplicaName, String), Bridge]()
  private val memories = new ConcurrentHashMap[String, DriverMemory]()
  private val calls = new RunningCalls

  /** The bridge whose queries have these settings, a JSON object; "": those of the application.
    *
    * It works for a replica of the coordinator of an environment, whose weight is `weight`, or with
    * "" for none.
    */
  def under(settings: String, environment: String, replica: String, weight: Int): Bridge = {
    val id = context.applicationId
    forgetAllBut(Some(id))
    val name = ReplicaName.of(environment, replica)
    bridges.computeIfAbsent((id, name, settings), _ => new Bridge(open(id, settings, name, weight)))
  }

  /** The replica has another weight beside the others of the driver. */
  def weigh(environment: String, replica: String, weight: Int): Unit = {
    val name = ReplicaName.of(environment, replica)
    for (memory <- memory if memory.replicas.find(name).nonEmpty)
      memory.replicas.weighed(name, weight)
  }

  /** The replica has ended: what its programs keep is given back, and others get its share. */
  def endReplica(environment: String, replica: String): Unit = {
    val name = ReplicaName.of(environment, replica)
    bridges.keySet.removeIf(_._2 == name)
    memory.foreach(_.end(name))
  }

  private def memory: Option[DriverMemory] = Option(memories.get(context.applicationId))

  /** Ends the call of a group, now or when it comes. */
  def cancel(group: String): Unit = calls.cancel(context, group)

  /** How many rows the jobs of a group have read of files and inline parts so far. */
  def rowsRead(group: String): Long = RunningCalls.rowsRead(context, group)

  /** See `LeaderIndex.answer`. */
  def lookUp(
      program: String,
      keys: Array[Byte],
      asOf: Long,
      below: Long,
      mostRows: Int,
      mostBytes: Int
  ): Array[Byte] = LeaderIndex.answer(program, keys, asOf, below, mostRows, mostBytes)

  /** The arrangements of a replica, as JSON: of each its `number`, the ids of the `collections`
    * whose rows it has, its `records` and `bytes`, and the ids of the views that are
    * its `readers`.
    */
  def arrangements(environment: String, replica: String): String = {
    val list = Json.mapper.createArrayNode()
    memory.flatMap(_.replicas.find(ReplicaName.of(environment, replica))).foreach {
      _.arrangements.sizes(environment).foreach { each =>
        val node = list
          .addObject()
          .put("number", each.number)
          .put("records", each.records)
          .put("bytes", each.bytes)
        val collections = node.putArray("collections")
        each.collections.foreach(collections.add)
        val readers = node.putArray("readers")
        each.readers.foreach(readers.add)
      }
    }
    Json.mapper.writeValueAsString(list)
  }

  /** The room for the arrangements of a replica, as JSON: of memory and of files, `where` it is, and
    * the bytes that are `used` and its `limit`.
    */
  def arrangementMemory(environment: String, replica: String): String = {
    val list = Json.mapper.createArrayNode()
    memory.flatMap(_.replicas.find(ReplicaName.of(environment, replica))).foreach { room =>
      val budget = room.arrangements.budget
      val (memoryLimit, fileLimit) = budget.limits
      list.addObject().put("where", "memory").put("used", budget.used).put("limit", memoryLimit)
      list.addObject().put("where", "files").put("used", budget.spilled).put("limit", fileLimit)
    }
    Json.mapper.writeValueAsString(list)
  }

  /** So many bytes of rows are given to the coordinator at once, as rows. */
  private def mostCollected: Long = math.min(16L << 20, Runtime.getRuntime.maxMemory / 64)

  private def context: SparkContext = SparkContext.getActive.getOrElse(
    throw new IllegalStateException("the Spark application has ended")
  )

  private def memoryOf(context: SparkContext): DriverMemory = {
    context.addSparkListener(new SparkListener {
      override def onApplicationEnd(end: SparkListenerApplicationEnd): Unit =
        forgetAllBut(SparkContext.getActive.filterNot(_.isStopped).map(_.applicationId))
    })
    DriverMemory.of(context)
  }

  /** What has no application any more: the driver may go on with another one. */
  private def forgetAllBut(application: Option[String]): Unit = {
    bridges.keySet.removeIf(id => !application.contains(id._1))
    val _ = memories.keySet.removeIf(id => !application.contains(id))
  }

  private def open(
      application: String,
      settings: String,
      replica: ReplicaName,
      weight: Int
  ): Opened = {
    val kept = memories.computeIfAbsent(application, _ => memoryOf(context))
    val chosen =
      if (settings.isEmpty) BridgeSession.environment
      else BridgeSession.of(Json.entries(Json.mapper.readTree(settings)))
    Opened(
      chosen.open(BridgeSession.settings),
      () => chosen.open(BridgeSession.fewSettings),
      () => chosen.open(BridgeSession.smallSettings),
      () => chosen.open(BridgeSession.rowByRowSettings),
      kept,
      !replica.isNone,
      () => kept.replicas.weighed(replica, weight),
      kept.views(settings)
    )
  }
}

/** What all bridges of a driver share: rows of parts, the rooms of replicas, dataflows, and plans. */
private[bridge] final case class DriverMemory(rows: PartRows, replicas: Replicas) {
  val dataflows: java.util.Set[Dataflows] = ConcurrentHashMap.newKeySet[Dataflows]()
  private val plans = new ConcurrentHashMap[String, AnalyzedViews]()

  /** The plans that were made with these settings, for whatever replica. */
  def views(settings: String): AnalyzedViews =
    plans.computeIfAbsent(settings, _ => new AnalyzedViews)

  def end(replica: ReplicaName): Unit = {
    dataflows.asScala.filter(_.replica.name == replica).foreach { each =>
      dataflows.remove(each)
      each.closeAll()
    }
    replicas.remove(replica)
  }
}

private[bridge] object DriverMemory {

  /** How much arrangements may take together, and how much of files beside it, as Spark writes sizes.
    */
  val arrangementsKey = "spark.slackwater.arrangements.memory"
  val spillKey = "spark.slackwater.arrangements.disk"

  def of(context: SparkContext): DriverMemory = {
    val conf = context.getConf
    val memory = conf.getSizeAsBytes(arrangementsKey, s"${Runtime.getRuntime.maxMemory / 2}b")
    val disk = conf.getSizeAsBytes(spillKey, s"${4 * memory}b")
    val folder = Path.of(Utils.getLocalDir(conf), s"slackwater-arrangements-${UUID.randomUUID}")
    val scanned = new MemoryBudget(TickBudget.ofHeap)
    DriverMemory(PartRows.ofDriver, new Replicas(context, memory, disk, folder, scanned))
  }
}

/** What a bridge works with: its sessions, and what it shares with others. */
private[bridge] final case class Opened(
    session: SparkSession,
    openFew: () => SparkSession,
    openSmall: () => SparkSession,
    openRowByRow: () => SparkSession,
    memory: DriverMemory,
    isOfReplica: Boolean,
    openRoom: () => ReplicaRoom,
    views: AnalyzedViews
)

/** The calls with one set of settings, and with sessions of its own.
  *
  * They may come from several threads: only parsing and analysis, which depend on the session's
  * current catalog, happen one after the other. What may take long has a `group` of its own, by
  * which `cancel` ends it.
  */
final class Bridge private[bridge] (opened: Opened) {
  import Bridge.calls
  private val own = opened.session

  private val views = opened.views
  private lazy val room = opened.openRoom()
  private val functions = new KeptFunctions(own)

  private lazy val flows: Dataflows = {
    val reader = new PartReader(own, opened.memory.rows)
    val made = new Dataflows(
      own,
      opened.openFew(),
      opened.openSmall(),
      opened.openRowByRow,
      reader,
      views,
      room,
      opened.memory.dataflows
    )
    opened.memory.dataflows.add(made)
    made
  }

  private lazy val requests = new Checks(opened.openFew())

  /** A condition over requests with these columns, as `{"check": id}`; errors as `analyze` has them.
    */
  def openCheck(text: String, schemaJson: String): String =
    try {
      val id = requests.open(text, Json.schema(Json.mapper.readTree(schemaJson)))
      Json.mapper.writeValueAsString(Json.obj().put("check", id))
    } catch { case NonFatal(error) => Json.mapper.writeValueAsString(Analysis.failure(error)) }

  /** For each row of an Arrow IPC stream whether the condition holds: 1, or 0. */
  def check(id: String, rows: Array[Byte]): Array[Byte] = requests.holds(id, rows)

  def closeCheck(id: String): Unit = requests.close(id)

  /** The programs of dataflows whose views have these settings. */
  def dataflows(): Dataflows = flows

  /** Fills what a program keeps; see `Dataflows.load`. */
  def loadProgram(programId: String, planId: String, requestJson: String, group: String): String =
    calls.within(own.sparkContext, group) {
      inPool(own)(flows.load(programId, planId, requestJson))
    }

  /** Runs a tick that reads collections by jobs; see `Dataflows.tick`. */
  def tickProgram(programId: String, requestJson: String, group: String): Array[Byte] =
    calls.within(own.sparkContext, group) {
      inPool(own)(flows.tick(programId, requestJson))
    }

  /** What a query reads, which functions it calls that are not Spark's own, and how it behaves, as
    * JSON; a user's error as `{"error": ..}`.
    *
    * @param kept
    *   functions that the query may call, as JSON
    */
  def analyze(
      text: String,
      catalog: String,
      namespace: Array[String],
      kept: String,
      group: String
  ): String =
    try {
      calls.within(own.sparkContext, group) {
        val (plan, called) = analyzedQuery(text, catalog, namespace, kept)
        val answer = Analysis.describe(own, plan)
        answer.set[ObjectNode]("functions", called)
        Json.mapper.writeValueAsString(answer)
      }
    } catch { case NonFatal(error) => Json.mapper.writeValueAsString(Analysis.failure(error)) }

  /** The plan of a query as JSON, which `docs/internals/analyzed_plans.md` describes, and under
    * `plan` the id by which this bridge keeps it until `forgetPlan`, or until another coordinator of
    * the environment plans; errors as `analyze` has them.
    *
    * @param kept
    *   functions that the query may call, as JSON
    * @param relations
    *   the objects that names of the query mean, as JSON; null: those that the catalog has
    * @param whole
    *   the ids of views that stay whole
    * @param indexes
    *   those on collections that the plan is to know of, as JSON; where it knows of an index or of a
    *   view that stays whole, there is beside it, under `expanded`, the plan that knows of none
    */
  def plan(
      text: String,
      catalog: String,
      namespace: Array[String],
      kept: String,
      relations: String,
      whole: Array[String],
      indexes: String,
      environment: String,
      coordinator: String,
      group: String
  ): String =
    try {
      calls.within(own.sparkContext, group) {
        val (analyzed, _) = analyzedQuery(text, catalog, namespace, kept, relations)
        val named = Json.mapper.readTree(indexes).asScala.toSeq
        val keyed = named.flatMap(keyedBy(catalog, relations, _))
        val view = AnalyzedView.of(own, analyzed, whole.toSet, keyed)
        val id = views.keep(view, Owner(environment, coordinator))
        val knowsNone = whole.isEmpty && keyed.isEmpty
        val expanded =
          if (knowsNone) "" else s""""expanded":${AnalyzedView.of(own, analyzed).json},"""
        s"""{"plan":"$id",$expanded${view.json.substring(1)}"""
      }
    } catch { case NonFatal(error) => Json.mapper.writeValueAsString(Analysis.failure(error)) }

  /** What an index of `{"query", "namespace", "keys", "name"}` has; None: it is not what it was. */
  private def keyedBy(
      catalog: String,
      relations: String,
      index: JsonNode
  ): Option[KeyedCollection] =
    try {
      val namespace = index.get("namespace").asScala.map(_.asText).toArray
      val (rows, _) = analyzedQuery(index.get("query").asText, catalog, namespace, "[]", relations)
      val name = index.get("name").asText
      own.withActive(KeyedCollection.of(own, name, rows, index.get("keys").asInt))
    } catch { case NonFatal(_) => None }

  /** A plan that `plan` has kept. Raises NoSuchElementException for one that is forgotten. */
  def planned(id: String): AnalyzedView = views.get(id)

  def forgetPlan(id: String): Unit = views.forget(id)

  /** The columns of local files by Spark's own inference, as the JSON of a StructType; errors as
    * `analyze` has them.
    *
    * @param requestJson
    *   `{"format", "options", "groups"}`, see `Inference.columns`
    */
  def infer(requestJson: String, group: String): String =
    try {
      calls.within(own.sparkContext, group) {
        val request = Json.mapper.readTree(requestJson)
        val groups = request.get("groups").asScala.map(_.asScala.map(_.asText).toSeq).toSeq
        val options = Json.entries(request.get("options"))
        val inference = new Inference(own)
        own.withActive {
          inPool(own)(inference.columns(request.get("format").asText, options, groups)).json
        }
      }
    } catch { case NonFatal(error) => Json.mapper.writeValueAsString(Analysis.failure(error)) }

  /** The moment that an expression of `AS OF` or `UP TO` means, in milliseconds since the epoch.
    *
    * It reads nothing: a subquery is refused before any name in it is looked up, since this session
    * has the coordinator's rights and not the user's. Raises SLACKWATER_INVALID_AS_OF.
    */
  def milliseconds(expression: String): Long = {
    own.withActive {
      val time = own.sessionState.sqlParser.parseExpression(expression)
      AsOf.refuseSubquery(time)
      val plan = AsOf(OneRowRelation(), time, atLeast = false)
      own.sessionState.executePlan(plan).analyzed match {
        case AsOf(_, resolved, _) => AsOf.evaluate(resolved)
        case other => throw new IllegalStateException(s"AS OF became ${other.nodeName}")
      }
    }
  }

  /** Makes a temporary view over the updates of a binding's relation, whose columns have the names
    * of files; `consolidated`: each row once at each time.
    */
  def register(
      viewName: String,
      schemaJson: String,
      relationJson: String,
      consolidated: Boolean
  ): Unit = {
    val schema = Json.schema(Json.mapper.readTree(schemaJson))
    val relation = Json.mapper.readTree(relationJson)
    val updates = PartScan.updates(own, viewName, Stored.columns(Sources.stored(schema)), relation)
    val plan = if (consolidated) Consolidate.updates(updates) else updates
    own.withActive(Dataset.ofRows(own, plan).createOrReplaceTempView(viewName))
  }

  def unregister(viewNames: Array[String]): Unit =
    viewNames.foreach(own.catalog.dropTempView(_))

  /** Runs a query and gives its rows as an Arrow IPC stream. */
  def collect(
      text: String,
      catalog: String,
      namespace: Array[String],
      group: String
  ): Array[Byte] =
    calls.within(own.sparkContext, group) {
      val rows = analyzed(text, catalog, namespace)._1
      collected(rows)(Wire.encode(_, rows.schema))
    }

  private def collected(rows: Dataset[_])(encode: Iterator[InternalRow] => Array[Byte]) =
    reading(rows.sparkSession, rows.queryExecution) {
      val plan = rows.queryExecution.executedPlan
      DriverTask.present(plan) match {
        case Some(rows) => encode(rows.iterator)
        case None       => TaskRows.of(plan)(encode)
      }
    }

  /** Runs a query of updates, writes Parquet files into `directory` and describes them as JSON. */
  def write(
      text: String,
      catalog: String,
      namespace: Array[String],
      directory: String,
      group: String
  ): String =
    calls.within(own.sparkContext, group) {
      written(analyzed(text, catalog, namespace)._1, directory)
    }

  /** All rows of an index, as `IndexRows` has them: an Arrow IPC stream, or what describes a file, as
    * text; null: it has not got them, or they are too many.
    */
  def takeAll(program: String, wantedJson: String, group: String): Any =
    calls.within(own.sparkContext, group) {
      val wanted = Json.mapper.readTree(wantedJson)
      val (asOf, below) = (wanted.get("as_of").asLong, wanted.get("below").asLong)
      IndexRows.wanted(wanted).of(own, program, asOf, below).map(_.merge).orNull
    }

  private def written(rows: Dataset[_], directory: String): String = {
    val session = rows.sparkSession
    val files = reading(session, rows.queryExecution) {
      val plan = rows.queryExecution.executedPlan
      val sink = RowSink.create(
        session,
        plan.schema,
        directory,
        UUID.randomUUID.toString,
        InlineLimit.none,
        withTimes = true
      )
      DriverTask.execute(plan) match {
        case Right(rows) => Seq(sink.drain(0, rows.iterator))
        case Left(rows)  => Written.byJob(rows, sink)
      }
    }
    described(files.flatMap(_.files))
  }

  /** Writes a planned view's rows at the time of `inputsJson` as `write` does; if there is
    * `recorded`, what they differ by from it.
    */
  def writeView(
      planId: String,
      inputsJson: String,
      names: Array[String],
      directory: String,
      group: String
  ): String = {
    calls.within(own.sparkContext, group) {
      written(flows.contents(planId, inputsJson, names.toSeq), directory)
    }
  }

  /** The updates that `writeView` writes, as an Arrow IPC stream; null: they are too many for that. */
  def collectView(
      planId: String,
      inputsJson: String,
      names: Array[String],
      group: String
  ): Array[Byte] =
    calls.within(own.sparkContext, group) {
      val rows = flows.contents(planId, inputsJson, names.toSeq)
      try collected(rows)(found => Wire.encode(few(found), rows.schema))
      catch { case ended: TickEnded if ended.reason == "large" => null }
    }

  /** The rows, of which no more are taken than the heap has room for in several forms. */
  private def few(rows: Iterator[InternalRow]): Iterator[InternalRow] = {
    val budget = new TickBudget(Bridge.mostCollected, None, () => false)
    rows.map { row =>
      row match {
        case unsafe: UnsafeRow => budget.take(unsafe.getSizeInBytes + PartRows.BesideRow)
        case _                 => budget.take(PartRows.BesideRow)
      }
      row
    }
  }

  /** A row that makes a planned view's query fail at the time of `inputsJson`; see
    * `Dataflows.failing`. null: none is found.
    */
  def failing(planId: String, inputsJson: String, group: String): FailingRow =
    calls.within(own.sparkContext, group) {
      val found = flows.failing(planId, inputsJson) { rows =>
        reading(rows.sparkSession, rows.queryExecution) {
          rows.queryExecution.executedPlan.executeCollect()
        }
      }
      found.orNull
    }

  private def described(files: Seq[WrittenFile]): String = {
    val list = Json.mapper.createArrayNode()
    files.foreach { file =>
      val node = file.describe(list.addObject())
      file.times.foreach { times =>
        node
          .put("min_time", times.min)
          .put("max_time", times.max)
          .put("has_retractions", times.retracts)
      }
    }
    Json.mapper.writeValueAsString(list)
  }

  private def analyzedQuery(
      text: String,
      catalog: String,
      namespace: Array[String],
      kept: String,
      relations: String = null
  ): (LogicalPlan, ArrayNode) = {
    def refuse(plan: LogicalPlan): Unit = if (plan.exists(isStatement)) throw DataErrors.noQuery()
    def analysis = analyzed(text, catalog, namespace, KeptFunctions.read(kept), refuse)
    val (rows, called) = Option(relations)
      .map(GivenRelations.read)
      .fold(analysis)(GivenRelations.within(_)(analysis))
    (rows.queryExecution.analyzed, called)
  }

  /** @param look
    *   is shown what was parsed, before Spark does anything with it
    */
  private def analyzed(
      text: String,
      catalog: String,
      namespace: Array[String],
      kept: Seq[JsonNode] = Nil,
      look: LogicalPlan => Unit = _ => ()
  ): (Dataset[Row], ArrayNode) = own.synchronized {
    own.withActive {
      enter(catalog, namespace)
      val plan = own.sessionState.sqlParser.parsePlan(text)
      look(plan)
      functions.within(kept)(Dataset.ofRows(own, plan))
    }
  }

  /** Lets names mean what they mean there. Where all relations are given, they are among them under
    * their whole names, and the place may be gone.
    */
  private def enter(catalog: String, namespace: Array[String]): Unit = {
    val manager = own.sessionState.catalogManager
    try {
      manager.setCurrentCatalog(catalog)
      manager.setCurrentNamespace(namespace)
    } catch {
      case NonFatal(_) if GivenRelations.current.isDefined =>
        manager.setCurrentCatalog(SparkSessions.catalogName)
    }
  }

  /** Spark would run it as soon as it is analyzed. */
  private def isStatement(plan: LogicalPlan): Boolean = plan match {
    case _: Command | _: ParsedStatement => true
    case _                               => false
  }

  private def inPool[A](session: SparkSession)(body: => A): A =
    BridgeSession.inPool(session, if (opened.isOfReplica) room.pool else BridgeSession.pool)(body)

  /** Runs `body` in the replica's pool; what it reads is held until it has ended. */
  private def reading[A](session: SparkSession, query: QueryExecution)(body: => A): A = {
    val scope = new BindScope(Nil)
    try
      session.withActive {
        inPool(session)(BindScope.within(scope)(body))
      }
    finally scope.holds.foreach(_.release())
  }
}

/** The settings that queries of a bridge have: all that can change a result, or None. */
private[bridge] final class BridgeSession(kept: Option[Map[String, String]]) {

  /** A session that has `own` beside them. */
  def open(own: Map[String, String]): SparkSession = {
    val session = SparkSession.getDefaultSession
      .getOrElse(SparkSession.active)
      .newSession()
      .asInstanceOf[SparkSession]
    val values = kept.getOrElse(Map(BridgeSession.timeZone -> "UTC"))
    // What nobody names has Spark's default, not the application's.
    (ResultSettings.of(session).keySet -- values.keySet).foreach(key => session.conf.unset(key))
    values.foreach { case (key, value) => session.conf.set(key, value) }
    val broadcast = BridgeSession.broadcast(session)
    (broadcast ++ own).foreach { case (key, value) => session.conf.set(key, value) }
    session
  }
}

private[bridge] object BridgeSession {
  val environment = new BridgeSession(None)
  def of(settings: Map[String, String]): BridgeSession = new BridgeSession(Some(settings))

  /** Runs jobs beside those of users' queries, with the session's settings. */
  def inPool[A](session: SparkSession, pool: String)(body: => A): A = {
    val context = session.sparkContext
    val before = context.getLocalProperty(poolKey)
    context.setLocalProperty(poolKey, pool)
    try SQLExecution.withSQLConfPropagated(session)(body)
    finally context.setLocalProperty(poolKey, before)
  }

  /** What is broadcast comes through the driver as a result does. Files, by which its size is guessed,
    * are smaller than their rows.
    */
  private def broadcast(session: SparkSession): Map[String, String] = {
    val limit = session.sparkContext.getConf.get(MAX_RESULT_SIZE)
    val most = session.sessionState.conf.autoBroadcastJoinThreshold
    if (limit <= 0 || limit / SharesOfResult >= most) Map.empty
    else Map(SQLConf.AUTO_BROADCASTJOIN_THRESHOLD.key -> s"${limit / SharesOfResult}b")
  }

  private val SharesOfResult = 16

  val timeZone = "spark.sql.session.timeZone"
  val poolKey = "spark.scheduler.pool"

  /** The pool of jobs that no replica runs; those of replicas are below it. */
  val pool = "slackwater"

  private val excluded = "spark.sql.optimizer.excludedRules"
  private def rule(name: String): String = s"org.apache.spark.sql.catalyst.optimizer.$name"

  /** Spark makes a null-aware anti join with the constants of its other side, which has no columns
    * then, and finds nothing there.
    */
  private val constantsInPlaceOfColumns = rule("FoldablePropagation")

  /** Of an array that is made of values, Spark makes an element beyond them NULL, also where that is
    * an error, and there the column is none that may be NULL: rows of such a view would be luck.
    */
  private val elementsOfKnownValues = rule("SimplifyExtractValueOps")

  /** A constant that fails would fail where there is no row to compute it for. */
  private val constantsBeforeRows = rule("ConstantFolding")

  val settings: Map[String, String] = Map(
    "spark.sql.adaptive.enabled" -> "false",
    "spark.sql.codegen.wholeStage" -> "true",
    "spark.sql.codegen.factoryMode" -> "FALLBACK",
    "spark.sql.shuffle.partitions" -> "4",
    "spark.slackwater.internal" -> "true",
    excluded -> s"$constantsInPlaceOfColumns,$elementsOfKnownValues"
  )

  /** Few rows are computed sooner than generated code for them would be compiled. */
  val fewSettings: Map[String, String] = settings ++ Map(
    "spark.sql.codegen.wholeStage" -> "false",
    "spark.sql.codegen.factoryMode" -> "NO_CODEGEN",
    "spark.sql.shuffle.partitions" -> "1"
  )

  /** Constants are computed when there is a row. */
  val rowByRowSettings: Map[String, String] = fewSettings ++ Map(
    excluded -> s"${settings(excluded)},$constantsBeforeRows"
  )

  /** Everything in one partition, so that nothing is shuffled or broadcast. */
  val smallSettings: Map[String, String] = settings ++ Map(
    "spark.sql.shuffle.partitions" -> "1",
    "spark.sql.exchange.reuse" -> "false",
    "spark.sql.autoBroadcastJoinThreshold" -> "-1"
  )
}
