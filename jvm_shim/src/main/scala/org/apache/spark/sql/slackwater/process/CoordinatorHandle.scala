package org.apache.spark.sql.slackwater.process

import java.io.IOException
import java.net.{ConnectException, URI, URLDecoder}
import java.net.http.{HttpClient, HttpConnectTimeoutException, HttpRequest, HttpResponse}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Paths
import java.time.Duration
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._
import scala.util.Try

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.SparkContext
import org.apache.spark.api.python.Py4JServer
import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{SparkListener, SparkListenerApplicationEnd}
import org.apache.spark.sql.slackwater.lexer.Lexer
import org.apache.spark.sql.slackwater.protocol.{
  Coordinator,
  Errors,
  Json,
  ObjectStore,
  SlackwaterAnalysisException
}

/** The coordinator of one location, for one Spark application. */
final class CoordinatorHandle private (
    override val location: String,
    metastore: Option[String],
    python: Option[String],
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

  private lazy val gateway: Py4JServer = {
    val server = new Py4JServer(context.conf)
    // Its threads serve the coordinator: they must not run as the session that came first.
    Threads.start("slackwater-gateway")(server.start()).join()
    server
  }

  @volatile private var endpoint: Option[Endpoint] = None
  private var closed = false
  private var shared = false
  private val sessions = ConcurrentHashMap.newKeySet[String]()
  // A coordinator that was started anew does not know of these blocks, and must refuse what follows.
  private val openBlocks = ConcurrentHashMap.newKeySet[String]()

  override def call(path: String, body: ObjectNode): JsonNode = {
    val response = send(path, body)
    if (response.statusCode != 200) throw error(response, body)
    answer(response)
  }

  override def find(path: String, body: ObjectNode): Option[JsonNode] = {
    val response = send(path, body)
    response.statusCode match {
      case 200 => Some(answer(response))
      case 404 => None
      case _   => throw error(response, body)
    }
  }

  override def execute(body: ObjectNode): Array[Byte] = {
    val response = send("/v1/execute", body)
    if (response.statusCode != 200) throw error(response, body)
    response.headers.firstValue("X-Slackwater-Notices").ifPresent { encoded =>
      Notices.show(Json.mapper.readTree(URLDecoder.decode(encoded.replace("+", "%2B"), UTF_8)))
    }
    response.body
  }

  /** Notes a session that calls; whether it is new. */
  private[slackwater] def openSession(id: String): Boolean = sessions.add(id)

  /** Tells the coordinator that a session has ended. Best effort: starts nothing, raises nothing. */
  private[slackwater] def closeSession(id: String): Unit = {
    sessions.remove(id)
    openBlocks.remove(id)
    endpoint.filter(_.isAlive).foreach { at =>
      val body = Json.obj()
      body.put("session", id)
      Try(http.send(request(at, "/v1/session/close", body, Some(closeLimit)), discarding))
    }
  }

  /** Lets the coordinator end. The application is over. */
  private[slackwater] def close(): Unit = synchronized {
    closed = true
    // A coordinator of another application goes on, and must not keep what these sessions hold.
    if (endpoint.exists(_.process.isEmpty)) sessions.asScala.toSeq.foreach(closeSession)
    endpoint.foreach { at =>
      at.close()
      Try(gateway.shutdown())
    }
    endpoint = None
  }

  private def answer(response: HttpResponse[Array[Byte]]): JsonNode = {
    val node = Json.mapper.readTree(response.body)
    if (node.has("notices")) Notices.show(node.get("notices"))
    node
  }

  private def send(path: String, body: ObjectNode): HttpResponse[Array[Byte]] = {
    var response: Option[HttpResponse[Array[Byte]]] = None
    var attempt = 0
    while (response.isEmpty) {
      attempt += 1
      val at = running()
      try {
        val found = http.send(request(at, path, body, None), receiving)
        noteBlock(body, found)
        // Somebody else listens there now, and has not looked at the call.
        if (found.statusCode == 401 && attempt < attempts) lost(at) else response = Some(found)
      } catch {
        case _: ConnectException | _: HttpConnectTimeoutException =>
          lost(at)
          if (attempt == attempts) throw unavailable("nobody listens at its address")
        case failure: IOException =>
          settle(at)
          if (!repeatable(path) && !rollsBack(body)) {
            // Whatever came of a COMMIT, the block is over.
            if (commits(body)) openBlocks.remove(body.path("session").asText)
            throw Errors.user("SLACKWATER_STATEMENT_INTERRUPTED")
          }
          if (attempt == attempts) throw unavailable(describe(failure))
        case _: InterruptedException =>
          cancel(at, body)
          Thread.currentThread().interrupt()
          throw Errors.user("SLACKWATER_CANCELED")
      }
    }
    response.get
  }

  private def request(
      at: Endpoint,
      path: String,
      body: ObjectNode,
      limit: Option[Duration]
  ): HttpRequest = {
    val session = body.path("session").asText
    if (openBlocks.contains(session)) body.put("transaction", "open")
    else body.remove("transaction")
    val builder = HttpRequest
      .newBuilder(URI.create(at.address + path))
      .header("Authorization", s"Bearer ${at.token}")
      .header("Content-Type", "application/json")
      .POST(HttpRequest.BodyPublishers.ofByteArray(Json.mapper.writeValueAsBytes(body)))
    limit.foreach(builder.timeout)
    builder.build()
  }

  /** Every answer to a session says whether the session is inside a transaction block. */
  private def noteBlock(body: ObjectNode, response: HttpResponse[Array[Byte]]): Unit =
    response.headers.firstValue("X-Slackwater-Transaction").ifPresent { state =>
      val session = body.path("session").asText
      if (state == "open") openBlocks.add(session) else openBlocks.remove(session)
    }

  /** The living endpoint; starts the process, or finds the leader, when there is none. */
  private def running(): Endpoint = endpoint.filter(_.isAlive).getOrElse(start())

  private def start(): Endpoint = synchronized {
    endpoint.filter(_.isAlive).getOrElse {
      if (closed) throw unavailable("the Spark application has ended")
      if (!shared) {
        SharedFolder.check(context, location)
        shared = true
      }
      val started = launch().start()
      endpoint = Some(started)
      if (started.process.isEmpty) attend(started)
      started
    }
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
    ObjectStore.prepare(context, location),
    python,
    applicationId,
    gateway.getListeningPort,
    gateway.secret,
    pinnedThreads = gateway.server.isInstanceOf[py4j.ClientServer]
  )

  /** Nobody answers at `at`: the next call looks for the coordinator anew. */
  private def lost(at: Endpoint): Unit = synchronized {
    if (endpoint.contains(at)) {
      at.close()
      endpoint = None
    }
  }

  /** A broken connection of a joined coordinator says nothing about the process: ask the next time. */
  private def settle(at: Endpoint): Unit = if (at.process.exists(!_.isAlive)) lost(at)

  private def cancel(at: Endpoint, body: ObjectNode): Unit =
    if (body.has("execution")) {
      val order = Json.obj()
      order.set[ObjectNode]("session", body.get("session"))
      order.set[ObjectNode]("execution", body.get("execution"))
      http.sendAsync(request(at, "/v1/cancel", order, Some(closeLimit)), discarding)
    }

  private def error(response: HttpResponse[Array[Byte]], body: ObjectNode): Throwable = {
    val found = Try(Json.mapper.readTree(response.body).path("error")).toOption.filter(_.isObject)
    found match {
      case Some(stated) =>
        // Another application leads now; the next statement joins it.
        if (stated.path("condition").asText == "SLACKWATER_FENCED") endpoint.foreach(lost)
        Errors.of(stated, Option(body.get("text")).map(_.asText))
      case None => unavailable(s"it answered with status ${response.statusCode}")
    }
  }

  private def unavailable(reason: String): SlackwaterAnalysisException =
    Errors.user("SLACKWATER_COORDINATOR_UNAVAILABLE", "location" -> location, "reason" -> reason)

  private def describe(failure: IOException): String =
    Option(failure.getMessage).getOrElse("the connection broke")
}

object CoordinatorHandle extends Logging {
  private val attempts = 4
  private val closeLimit = Duration.ofSeconds(2)
  private val receiving = HttpResponse.BodyHandlers.ofByteArray()
  private val discarding = HttpResponse.BodyHandlers.discarding()

  /** Rolling back twice is rolling back once. */
  private def rollsBack(body: ObjectNode): Boolean = Set("ROLLBACK", "ABORT")(firstWord(body))

  private def commits(body: ObjectNode): Boolean = firstWord(body) == "COMMIT"

  private def firstWord(body: ObjectNode): String =
    Lexer.first(body.path("text").asText, 1).headOption.fold("")(_.image.toUpperCase)

  /** Calls that have no effect, or the same one when they are sent twice. */
  private val repeatable = Set(
    "/v1/plan",
    "/v1/catalog/load",
    "/v1/catalog/list",
    "/v1/catalog/namespaces",
    "/v1/bind",
    "/v1/release",
    "/v1/status",
    "/v1/write",
    "/v1/cancel"
  )

  private final case class Key(applicationId: String, location: String, metastore: Option[String])

  // One coordinator for each environment in a driver, whatever class or session asks first.
  private val handles = new ConcurrentHashMap[Key, CoordinatorHandle]()

  /** The handle for the environment that `setting` names. */
  def of(context: SparkContext, setting: String => Option[String]): CoordinatorHandle = {
    val location = absolute(
      setting("spark.slackwater.location").getOrElse("slackwater-environment")
    )
    val metastore = setting("spark.slackwater.metastore")
    val key = Key(context.applicationId, location, metastore)
    handles.computeIfAbsent(
      key,
      _ => {
        endWith(context)
        new CoordinatorHandle(location, metastore, setting("spark.slackwater.python"), context)
      }
    )
  }

  private def absolute(location: String): String =
    if (location.matches("[A-Za-z][A-Za-z0-9+.-]+:.*")) location
    else Paths.get(location).toAbsolutePath.normalize.toString

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

/** Shows what the coordinator has to say beside its answer. */
private object Notices extends Logging {

  /** One user's shell or program, whose terminal this process shares. A server's users are elsewhere:
    * for them there is SHOW NOTICES.
    */
  private lazy val haveTerminal = {
    val command = sys.props.getOrElse("sun.java.command", "")
    command.contains("SparkSQLCLIDriver") ||
    command.contains("SparkSubmit") && command.matches(raw"(?s).*(pyspark-shell|\.py)(\s.*)?")
  }

  def show(notices: JsonNode): Unit = notices.elements.asScala.foreach { notice =>
    val severity = notice.path("severity").asText("NOTICE")
    val text = s"$severity: ${notice.path("message").asText}"
    if (haveTerminal) System.err.println(text) else logInfo(text)
  }
}
