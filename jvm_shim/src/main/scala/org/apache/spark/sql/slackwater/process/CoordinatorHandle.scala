package org.apache.spark.sql.slackwater.process

import java.io.IOException
import java.net.{ConnectException, URI, URLDecoder}
import java.net.http.{HttpClient, HttpConnectTimeoutException, HttpRequest, HttpResponse}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Paths
import java.time.Duration
import java.util.{Locale, UUID}
import java.util.concurrent.{
  FutureTask,
  CompletableFuture,
  ConcurrentHashMap,
  TimeUnit,
  TimeoutException
}

import scala.jdk.CollectionConverters._
import scala.util.Try
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.SparkContext
import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{SparkListener, SparkListenerApplicationEnd}
import org.apache.spark.sql.slackwater.lexer.Lexer
import org.apache.spark.sql.slackwater.protocol.{
  Coordinator,
  Errors,
  Json,
  KnownRead,
  ObjectDescription,
  ObjectStore,
  RelationRead,
  SlackwaterAnalysisException
}

/** The coordinator of one location, for one Spark application. */
final class CoordinatorHandle private (
    override val location: String,
    metastore: Option[String],
    variables: Map[String, String],
    python: Option[String],
    lease: Option[String],
    ingress: Map[String, String],
    context: SparkContext
) extends Coordinator
    with Logging {
  import CoordinatorHandle._

  private val applicationId = context.applicationId
  private val http = HttpClient
    .newBuilder()
    .version(HttpClient.Version.HTTP_1_1)
    .proxy(HttpClient.Builder.NO_PROXY)
    .connectTimeout(Duration.ofSeconds(10))
    .executor(Threads.pool())
    .build()

  private lazy val gateway: Gateway = {
    // Its threads serve the coordinator: they must not run as the session that came first, nor be
    // part of its statement, whose jobs Spark keeps until it ends.
    val made = new FutureTask(() => {
      val server = new Gateway(context.conf)
      server.start()
      server
    })
    Threads.start("slackwater-gateway")(made.run())
    made.get()
  }

  @volatile private var endpoint: Option[Endpoint] = None
  @volatile private var closed = false
  private var shared = false
  private val sessions = ConcurrentHashMap.newKeySet[String]()
  // A coordinator that was started anew does not know of these blocks, and must refuse what follows.
  private val openBlocks = ConcurrentHashMap.newKeySet[String]()
  private val locks = new WriteLocks(renew)
  private val unbound = new UnboundReads(post("/v1/reads", _))

  override def call(path: String, body: ObjectNode): JsonNode = {
    locks.called(path, body)
    val response = send(path, body)
    if (response.status != 200) throw error(response, body)
    val found = answer(response)
    locks.answered(found)
    found
  }

  override def find(path: String, body: ObjectNode): Option[JsonNode] = {
    val response = send(path, body)
    response.status match {
      case 200 => Some(answer(response))
      case 404 => None
      case _   => throw error(response, body)
    }
  }

  override def load(namespace: String, name: String)(
      request: => ObjectNode
  ): Option[ObjectDescription] = {
    def asked = find("/v1/catalog/load", request).map(Json.objectDescription)
    endpoint.filter(_.isAlive).flatMap(_.catalog).fold(asked)(_.find(namespace, name)(asked))
  }

  override def bind(body: ObjectNode, reads: Seq[RelationRead]): JsonNode = {
    val at = if (reads.isEmpty) None else endpoint.filter(_.isAlive)
    val before = at.flatMap(_.reads).flatMap(_.before)
    val answer = call("/v1/bind", body)
    for {
      moment <- before
      asked <- at if endpoint.exists(_ eq asked)
      known <- asked.reads
    } known.keep(body.get("session").asText, reads, moment, answer)
    answer
  }

  override def known(session: String, reads: Seq[RelationRead]): Option[KnownRead] =
    if (openBlocks.contains(session)) None
    else endpoint.filter(_.isAlive).flatMap(_.reads).flatMap(_.find(session, reads))

  override def tell(read: ObjectNode, beganNs: Long): Unit = unbound.add(read, beganNs)

  override def execute(body: ObjectNode): Array[Byte] = {
    // It may change settings of the session, or begin a block.
    forget(body.path("session").asText)
    try executed(body)
    finally forget(body.path("session").asText)
  }

  private def forget(session: String): Unit = endpoint.flatMap(_.reads).foreach(_.forget(session))

  private def executed(body: ObjectNode): Array[Byte] = {
    val response = send("/v1/execute", body)
    if (response.status != 200) throw error(response, body)
    response.headers.get("x-slackwater-notices").foreach { encoded =>
      Notices.show(Json.mapper.readTree(URLDecoder.decode(encoded.replace("+", "%2B"), UTF_8)))
    }
    response.body
  }

  /** Whether the coordinator runs beside this driver, and not beside another one's. */
  def leads: Boolean = endpoint.exists(at => at.process.isDefined && at.isAlive)

  /** Whether the session has called this coordinator, or is just about to. */
  private def knows(id: String): Boolean = sessions.contains(id)

  private def renew(holds: Seq[String]): Unit = {
    val body = Json.obj()
    body.set[ObjectNode]("holds", Json.texts(holds))
    post("/v1/renew", body)
  }

  /** Tells the coordinator something, if it lives. Best effort, and soon over: starts nothing, raises
    * nothing.
    */
  private def post(path: String, body: ObjectNode): Unit =
    endpoint.filter(_.isAlive).foreach { at =>
      Try(http.send(request(at, path, body, Some(closeLimit)), discarding))
    }

  /** Notes a session that calls; whether it is new. */
  private[slackwater] def openSession(id: String): Boolean = sessions.add(id)

  /** Tells the coordinator that a session has ended. Best effort: starts nothing, raises nothing. */
  private[slackwater] def closeSession(id: String): Unit = {
    sessions.remove(id)
    openBlocks.remove(id)
    forget(id)
    unbound.flush()
    post("/v1/session/close", Json.obj().put("session", id))
  }

  /** Lets the coordinator end. The application is over. */
  private[slackwater] def close(): Unit = synchronized {
    unbound.flush()
    closed = true
    locks.close()
    // A coordinator of another application goes on, and must not keep what these sessions hold.
    if (endpoint.exists(_.process.isEmpty)) sessions.asScala.toSeq.foreach(closeSession)
    endpoint.foreach { at =>
      at.connections.close()
      at.close()
      Try(gateway.shutdown())
    }
    endpoint = None
  }

  private def answer(response: Answer): JsonNode = {
    val node = Json.mapper.readTree(response.body)
    if (node.has("notices")) Notices.show(node.get("notices"))
    node
  }

  private def send(path: String, body: ObjectNode): Answer = {
    var response: Option[Answer] = None
    val attempts = new Attempts
    // From then on it may have had its effect, whoever is asked again.
    var sent = false
    while (response.isEmpty) {
      val at =
        try if (CoordinatorHandle.afterwards(path)) living() else running()
        catch { case NonFatal(_) if sent && commits(body) => throw interrupted(body) }
      try {
        val found = exchange(at, path, body)
        noteBlock(body, found)
        // Another application leads now; the next statement joins it.
        if (stated(found).exists(_.path("condition").asText == "SLACKWATER_FENCED")) lost(at)
        // Somebody else listens there now, and has not looked at the call.
        if (found.status == 401 && attempts.lost()) lost(at) else response = Some(found)
      } catch {
        case _: ConnectException | _: HttpConnectTimeoutException =>
          lost(at)
          if (!attempts.lost()) {
            throw if (sent && commits(body)) interrupted(body)
            else unavailable("nobody listens at its address")
          }
        case failure: IOException =>
          sent = true
          val goesOn = if (hasGone(at, attempts)) attempts.lost() else attempts.broke()
          if (!repeatable(path) && !rollsBack(body) && !commits(body)) throw interrupted(body)
          if (!goesOn) {
            throw if (commits(body)) interrupted(body) else unavailable(describe(failure))
          }
      }
    }
    response.get
  }

  /** Sends the call and waits for its answer, for as long as whoever was asked leads, and until the
    * thread or its jobs are cancelled.
    */
  private def exchange(at: Endpoint, path: String, body: ObjectNode): Answer =
    if (body.path("internal").asBoolean || afterwards(path)) answered(at, path, body)
    else WaitLine.during(waitsFor(at, body))(answered(at, path, body))

  private def waitsFor(at: Endpoint, body: ObjectNode): Option[String] = {
    val order = Json.obj()
    Seq("session", "execution").foreach(name => order.set[ObjectNode](name, body.get(name)))
    sentence(at, "/v1/waits", order)
  }

  override def writing(body: ObjectNode): Option[String] =
    endpoint
      .filter(_.isAlive)
      .flatMap(at => Try(sentence(at, "/v1/writing", body)).toOption.flatten)

  private def sentence(at: Endpoint, path: String, body: ObjectNode): Option[String] = {
    val asked = http.send(request(at, path, body, Some(closeLimit)), receiving)
    Option(Json.mapper.readTree(asked.body).path("waits_for")).filter(_.isTextual).map(_.asText)
  }

  private def answered(
      at: Endpoint,
      path: String,
      body: ObjectNode
  ): Answer = if (path == "/v1/bind") bound(at, body)
  else {
    if (named(path)) body.put("execution", UUID.randomUUID.toString)
    if (statements(path)) {
      RunningStatement.execution(context).foreach(body.put("execution", _))
      RunningStatement.describe(context, body)
    }
    val answer = http.sendAsync(request(at, path, body, None), receiving)
    def awaited(wait: Wait) = wait.until(answer, silence)(refuseSilent(at))
    try {
      val found =
        try
          if (endable(path) && !body.path("internal").asBoolean) Waits.during(context)(awaited)
          else Some(awaited(new Wait(None, Set.empty)).get)
        catch {
          case _: InterruptedException =>
            try outcome(at, path, body, answer)
            finally Thread.currentThread().interrupt()
        }
      answerOf(found.orElse(outcome(at, path, body, answer)).get)
    } finally {
      val _ = answer.cancel(true)
    }
  }

  private def answerOf(response: HttpResponse[Array[Byte]]): Answer = Answer(
    response.statusCode,
    response.headers.map.asScala.map { case (name, values) =>
      name.toLowerCase(Locale.ROOT) -> values.get(0)
    }.toMap,
    response.body
  )

  /** As `exchange`, for binds: by this thread alone, since each read has one. */
  private def bound(at: Endpoint, body: ObjectNode): Answer = {
    val connection = at.connections.take()
    var kept = false
    var heardNs = System.nanoTime
    def goesOn(wait: Wait): Boolean = {
      if (System.nanoTime - heardNs > silence.toNanos) {
        refuseSilent(at)
        heardNs = System.nanoTime
      }
      !wait.isOver && !Thread.currentThread().isInterrupted
    }
    def awaited(wait: Wait) = connection.receive(() => goesOn(wait))
    try {
      connection.send("/v1/bind", at.token, written(body))
      val found =
        if (body.path("internal").asBoolean) awaited(new Wait(None, Set.empty))
        else Waits.during(context)(awaited)
      if (found.isEmpty) {
        cancel(at, body)
        giveBack(at, body, connection)
      }
      kept = found.isDefined
      found.getOrElse(throw Errors.user("SLACKWATER_CANCELED"))
    } finally if (kept) at.connections.give(connection) else connection.close()
  }

  /** A statement may take as long as it likes, and a coordinator that hangs has its port open: so a
    * silent one is asked whether it lives, and if it does not say so, its lease decides.
    */
  private def refuseSilent(at: Endpoint): Unit =
    if (!lives(at) && !leads(at)) throw new IOException("another application leads now")

  /** The end of a call that is cancelled. What may have an effect tells whether it had it; until it
    * does, it is cancelled again and again, as the coordinator may not have begun with it before.
    */
  private def outcome(
      at: Endpoint,
      path: String,
      body: ObjectNode,
      answer: CompletableFuture[HttpResponse[Array[Byte]]]
  ): Option[HttpResponse[Array[Byte]]] = {
    cancel(at, body)
    if (!effective(path)) {
      answer.cancel(true)
      throw Errors.user("SLACKWATER_CANCELED")
    }
    val until = System.nanoTime + outcomeLimit.toNanos
    try
      new Wait(None, Set.empty).until(answer, cancelPause) {
        if (System.nanoTime > until) throw new TimeoutException
        cancel(at, body)
      }
    catch {
      case _: TimeoutException | _: InterruptedException =>
        answer.cancel(true)
        throw Errors.user("SLACKWATER_STATEMENT_INTERRUPTED")
    }
  }

  /** A bind may have been granted in the moment in which it was cancelled: nobody reads under it. */
  private def giveBack(at: Endpoint, body: ObjectNode, connection: Connection): Unit =
    try {
      val until = System.nanoTime + bindLimit.toNanos
      val found = connection.receive(() => System.nanoTime < until)
      val hold = Json.mapper.readTree(found.fold(Array.emptyByteArray)(_.body)).path("hold")
      if (hold.isTextual) {
        val order = Json.obj()
        order.set[ObjectNode]("session", body.get("session"))
        order.putArray("holds").add(hold)
        http.sendAsync(request(at, "/v1/release", order, Some(closeLimit)), discarding)
      }
    } catch {
      // The coordinator sees that the connection ends, and gives it back itself.
      case _: IOException => ()
    }

  private def lives(at: Endpoint): Boolean =
    endpoint.contains(at) && at.isAlive &&
      Try(http.send(request(at, "/v1/status", Json.obj(), Some(silence)), discarding))
        .fold(_ => false, _.statusCode == 200)

  /** Whether a silent coordinator still leads; replaces it, or joins who has, when it does not.
    * Raises what the process raises that finds it out.
    */
  private def leads(at: Endpoint): Boolean = synchronized {
    if (closed || !endpoint.contains(at)) false
    else {
      val found = launch().start()
      if (found.epoch != at.epoch) {
        at.connections.close()
        at.discard()
        follow(found)
      }
      found.epoch == at.epoch
    }
  }

  private def request(
      at: Endpoint,
      path: String,
      body: ObjectNode,
      limit: Option[Duration]
  ): HttpRequest = {
    val builder = HttpRequest
      .newBuilder(URI.create(at.address + path))
      .header("Authorization", s"Bearer ${at.token}")
      .header("Content-Type", "application/json")
      .POST(HttpRequest.BodyPublishers.ofByteArray(written(body)))
    limit.foreach(builder.timeout)
    builder.build()
  }

  private def written(body: ObjectNode): Array[Byte] = {
    // A COMMIT that is asked for again is still about the block that was open then.
    if (openBlocks.contains(body.path("session").asText)) body.put("transaction", "open")
    else if (!commits(body)) body.remove("transaction")
    Json.mapper.writeValueAsBytes(body)
  }

  /** Every answer to a session says whether the session is inside a transaction block. */
  private def noteBlock(body: ObjectNode, response: Answer): Unit =
    response.headers.get("x-slackwater-transaction").foreach { state =>
      val session = body.path("session").asText
      if (state == "open") openBlocks.add(session) else openBlocks.remove(session)
    }

  /** The living endpoint; starts the process, or finds the leader, when there is none. */
  private def running(): Endpoint = endpoint.filter(_.isAlive).getOrElse(start())

  /** The living endpoint, for what nobody is to be started for: its holds end with a coordinator. */
  private def living(): Endpoint =
    endpoint.filter(_.isAlive).getOrElse(throw unavailable("it has ended"))

  private def start(): Endpoint = synchronized {
    endpoint.filter(_.isAlive).getOrElse {
      if (closed) throw unavailable("the Spark application has ended")
      if (!shared) {
        SharedFolder.check(context, location)
        shared = true
      }
      val started = launch().start()
      follow(started)
      started
    }
  }

  private def follow(started: Endpoint): Unit = {
    endpoint = Some(started)
    locks.clear()
    if (started.process.isEmpty) attend(started)
  }

  /** Keeps a call open at a leader that is not ours: when it breaks, this application is gone, and
    * what its sessions hold there is released.
    */
  private def attend(at: Endpoint): Unit = {
    val body = Json.obj()
    body.put("application", applicationId)
    http.sendAsync(request(at, "/v1/attend", body, None), discarding)
  }

  private def launch(): Launch = Launch(
    location,
    metastore,
    ObjectStore.prepare(context, location) ++ variables,
    python,
    lease,
    ingress,
    applicationId,
    gateway.port,
    gateway.secret
  )

  /** Nobody answers at `at`: the next call looks for the coordinator anew. */
  private def lost(at: Endpoint): Unit = synchronized {
    if (endpoint.contains(at)) {
      at.connections.close()
      at.close()
      endpoint = None
    }
  }

  /** Whether the coordinator that broke a connection has gone; the next call looks for it anew.
    *
    * The end of a process is seen a little after its connections broke. Of a joined one it is not
    * seen: only that all its connections break, the idle ones that are used next among them.
    */
  private def hasGone(at: Endpoint, attempts: Attempts): Boolean = {
    val gone =
      at.process.fold(attempts.isLastConnection)(_.waitFor(endLimitMs, TimeUnit.MILLISECONDS))
    if (gone) lost(at)
    gone
  }

  private def cancel(at: Endpoint, body: ObjectNode): Unit =
    if (body.has("execution")) {
      val order = Json.obj()
      order.set[ObjectNode]("session", body.get("session"))
      order.set[ObjectNode]("execution", body.get("execution"))
      http.sendAsync(request(at, "/v1/cancel", order, Some(closeLimit)), discarding)
    }

  private def error(response: Answer, body: ObjectNode): Throwable =
    stated(response) match {
      case Some(error) => Errors.of(error, Option(body.get("text")).map(_.asText))
      case None        => unavailable(s"it answered with status ${response.status}")
    }

  /** The error that the coordinator states in its answer. */
  private def stated(response: Answer): Option[JsonNode] =
    Option
      .unless(response.status == 200)(response.body)
      .flatMap(text => Try(Json.mapper.readTree(text).path("error")).toOption)
      .filter(_.isObject)

  /** Nobody knows what came of it. Whatever came of a COMMIT, the block is over. */
  private def interrupted(body: ObjectNode): Throwable = {
    if (commits(body)) openBlocks.remove(body.path("session").asText)
    Errors.user("SLACKWATER_STATEMENT_INTERRUPTED")
  }

  private def unavailable(reason: String): SlackwaterAnalysisException =
    Errors.user("SLACKWATER_COORDINATOR_UNAVAILABLE", "location" -> location, "reason" -> reason)

  private def describe(failure: IOException): String =
    Option(failure.getMessage).getOrElse("the connection broke")
}

object CoordinatorHandle extends Logging {

  /** Calls about what has ended, for which no coordinator is started. */
  private val afterwards = Set("/v1/release", "/v1/scanned")

  private val closeLimit = Duration.ofSeconds(2)

  /** So long after it broke a connection a coordinator of this driver is expected to have ended. */
  private val endLimitMs = 1000L

  /** After so long without an answer it is asked whether the coordinator lives. */
  private val silence = Duration.ofSeconds(2)

  /** So long the coordinator may take to say what became of a call that is cancelled. */
  private val outcomeLimit = Duration.ofSeconds(60)

  /** So long after one cancel the next one is sent. */
  private val cancelPause = Duration.ofMillis(500)

  /** So long it may take to end a bind that is cancelled. */
  private val bindLimit = Duration.ofSeconds(5)

  /** What Spark's own statements define. */
  private val definitions = Set(
    "/v1/catalog/create_namespace",
    "/v1/catalog/alter_namespace",
    "/v1/catalog/drop_namespace",
    "/v1/catalog/create_table",
    "/v1/catalog/alter_table",
    "/v1/catalog/rename_table",
    "/v1/catalog/drop_table",
    "/v1/catalog/create_view",
    "/v1/catalog/drop_view"
  )

  /** Calls that get a name here, by which they are cancelled. */
  private val named = Set("/v1/write", "/v1/peek") ++ definitions

  /** Calls of Spark's own statements, some of which have others before. */
  private val statements = Set("/v1/write", "/v1/catalog/stage_table") ++ definitions

  /** Calls in which statements wait. */
  private val endable = Set("/v1/plan", "/v1/execute", "/v1/bind") ++ named

  /** Calls that are not over before their outcome is known. */
  private val effective = Set("/v1/execute", "/v1/write") ++ definitions
  private val receiving = HttpResponse.BodyHandlers.ofByteArray()
  private val discarding = HttpResponse.BodyHandlers.discarding()

  /** Rolling back twice is rolling back once. A COMMIT has an id, by which it is known again. */
  private def rollsBack(body: ObjectNode): Boolean = Set("ROLLBACK", "ABORT")(firstWord(body))

  private def commits(body: ObjectNode): Boolean = firstWord(body) == "COMMIT"

  private def firstWord(body: ObjectNode): String =
    Lexer.first(body.path("text").asText, 1).headOption.fold("")(_.image.toUpperCase(Locale.ROOT))

  /** Calls that have no effect, or the same one when they are sent twice. */
  private val repeatable = Set(
    "/v1/plan",
    "/v1/catalog/load",
    "/v1/catalog/list",
    "/v1/catalog/namespaces",
    "/v1/catalog/find_schemas",
    "/v1/catalog/find_relations",
    "/v1/catalog/find_columns",
    "/v1/catalog/stage_table",
    "/v1/bind",
    "/v1/release",
    "/v1/status",
    "/v1/write",
    "/v1/cancel"
  )

  private final case class Key(applicationId: String, location: String, metastore: Option[String])

  // One coordinator for each environment in a driver, whatever class or session asks first.
  private val handles = new ConcurrentHashMap[Key, CoordinatorHandle]()

  /** The handle for the environment of the application.
    *
    * What a session sets does not count: who may only run SQL would name a program to be run.
    */
  def of(context: SparkContext): CoordinatorHandle = {
    val setting = context.getConf.getOption(_)
    val location = absolute(
      setting("spark.slackwater.location").getOrElse("slackwater-environment")
    )
    val metastore = setting("spark.slackwater.metastore")
    val key = Key(context.applicationId, location, metastore)
    handles.computeIfAbsent(
      key,
      _ => {
        Locales.check(context.getConf.getAllWithPrefix("spark.slackwater.").toSeq)
        endWith(context)
        new CoordinatorHandle(
          location,
          metastore,
          variables(setting),
          setting("spark.slackwater.python"),
          setting("spark.slackwater.lease"),
          context.getConf.getAllWithPrefix("spark.slackwater.ingress.").toMap,
          context
        )
      }
    )
  }

  /** Whether the session has called any coordinator. */
  private[process] def isKnown(session: String): Boolean =
    handles.values.asScala.exists(_.knows(session))

  /** Variables for the coordinator's process. Spark hides passwords in its UI and event log. */
  private def variables(setting: String => Option[String]): Map[String, String] =
    Seq(
      "spark.slackwater.parameters.file" -> "SLACKWATER_PARAMETERS_FILE",
      "spark.slackwater.metastore.password" -> "SLACKWATER_METASTORE_PASSWORD",
      "spark.slackwater.metastore.passwordFile" -> "SLACKWATER_METASTORE_PASSWORD_FILE"
    ).flatMap { case (key, variable) => setting(key).map(variable -> _) }.toMap

  private def absolute(location: String): String =
    if (location.matches("[A-Za-z][A-Za-z0-9+.-]+:.*")) location
    else {
      Locales.check(Seq("location" -> location))
      Paths.get(location).toAbsolutePath.normalize.toString
    }

  private def endWith(context: SparkContext): Unit = {
    val id = context.applicationId
    context.addSparkListener(new SparkListener {
      override def onApplicationEnd(end: SparkListenerApplicationEnd): Unit = closeAll(id)
    })
  }

  private def closeAll(applicationId: String): Unit =
    handles.asScala.toSeq.filter(_._1.applicationId == applicationId).foreach {
      case (key, handle) =>
        handles.remove(key)
        handle.close()
    }
}
