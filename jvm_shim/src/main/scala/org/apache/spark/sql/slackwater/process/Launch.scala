package org.apache.spark.sql.slackwater.process

import java.io.{BufferedReader, InputStream, InputStreamReader}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths}
import java.util.concurrent.{CompletableFuture, TimeUnit, TimeoutException}

import scala.collection.mutable
import scala.util.Try

import com.fasterxml.jackson.databind.JsonNode
import org.slf4j.LoggerFactory

import org.apache.spark.internal.Logging
import org.apache.spark.sql.slackwater.protocol.{Errors, Json, SlackwaterAnalysisException}

/** Where a coordinator listens. `process` is the one that this driver runs; None: it has joined.
  * `mark` is that of such a process.
  */
final case class Endpoint(
    address: String,
    token: String,
    epoch: Long,
    log: String,
    process: Option[Process],
    private[process] val mark: Option[LeaderMark] = None
) {

  /** What is known of its catalog, and of reads that come again. */
  private[process] val catalog: Option[KnownCatalog] =
    mark.map(found => new KnownCatalog(() => found.revision))
  private[process] val reads: Option[KnownReads] =
    mark.map(found => new KnownReads(() => found.moment, () => found.isHeld, () => System.nanoTime))

  def isAlive: Boolean = process.forall(_.isAlive)

  /** Those on which statements wait for their binds. */
  private[process] lazy val connections = new Connections(address)

  /** Ends the coordinator: it stops when its standard input does. */
  def close(): Unit = process.foreach(running => Try(running.getOutputStream.close()))

  /** Ends a coordinator that hangs, and that another one has replaced. */
  def discard(): Unit = process.foreach(_.destroyForcibly())
}

/** How to run the coordinator's process.
  *
  * @param store
  *   variables that say how the location's store is reached; they may be secrets
  * @param python
  *   `spark.slackwater.python`; without it, the usual places are searched
  * @param lease
  *   `spark.slackwater.lease`: for how long the leader may be silent
  * @param ingress
  *   the settings below `spark.slackwater.ingress.`, without that
  */
final case class Launch(
    location: String,
    metastore: Option[String],
    store: Map[String, String],
    python: Option[String],
    lease: Option[String],
    ingress: Map[String, String],
    applicationId: String,
    gatewayPort: Int,
    gatewaySecret: String
) extends Logging {
  import Launch._

  /** Runs the process and waits for the line in which it says where the coordinator is.
    *
    * Raises the error that the process states, or `SLACKWATER_COORDINATOR_START` when there is no
    * such line after 60 s.
    */
  def start(): Endpoint = {
    val process = run()
    val errorOutput = new ErrorOutput(process.getErrorStream)
    val line = new CompletableFuture[String]
    Threads.start("slackwater-coordinator-out")(passLines(process.getInputStream, line))
    val announced =
      try Option(patiently(line))
      catch {
        case _: TimeoutException =>
          process.destroyForcibly()
          throw failed(s"it said nothing for ${startLimitMs / 1000} s")
        case interrupted: InterruptedException =>
          process.destroyForcibly()
          throw interrupted
      }
    announced.flatMap(text => Try(Json.mapper.readTree(text)).toOption).filter(_.isObject) match {
      case Some(answer) => endpoint(answer, process)
      case None         =>
        process.getOutputStream.close()
        process.waitFor(5, TimeUnit.SECONDS)
        process.destroyForcibly()
        throw failed(errorOutput.last.getOrElse("it ended without a word"))
    }
  }

  /** The line; people who wait for it are told what for. */
  private def patiently(line: CompletableFuture[String]): String =
    try line.get(toldAfterMs, TimeUnit.MILLISECONDS)
    catch {
      case _: TimeoutException =>
        console.info(s"Starting the coordinator of $location ...")
        line.get(startLimitMs - toldAfterMs, TimeUnit.MILLISECONDS)
    }

  private def endpoint(answer: JsonNode, process: Process): Endpoint = {
    if (answer.has("error")) throw Errors.of(answer.get("error"), None)
    val joined = answer.path("role").asText == "joined"
    if (joined) Try(process.getOutputStream.close())
    logInfo(
      s"Slackwater coordinator: ${answer.path("role").asText} ${answer.path("address").asText}"
    )
    Endpoint(
      answer.get("address").asText,
      Files.readString(Paths.get(answer.get("token_file").asText)).trim,
      answer.path("epoch").asLong,
      answer.path("log").asText(""),
      Option.unless(joined)(process),
      Option.unless(joined)(answer.path("mark").asText("")).flatMap(LeaderMark.of)
    )
  }

  private def run(): Process = {
    val executable = Interpreter.find(python)
    val builder = new ProcessBuilder((executable +: arguments): _*)
    val environment = builder.environment
    // What the user's own program takes for an error has not to end the coordinator.
    environment.remove("PYTHONWARNINGS")
    // The driver's own channel to a Python front end is not the coordinator's.
    environment.remove("_PYSPARK_DRIVER_CONN_INFO_PATH")
    environment.put("SLACKWATER_LOCATION", location)
    metastore.foreach(environment.put("SLACKWATER_METASTORE", _))
    store.foreach { case (name, value) => environment.put(name, value) }
    lease.foreach(environment.put("SLACKWATER_LEASE", _))
    if (ingress.nonEmpty) {
      environment.put("SLACKWATER_INGRESS", Json.textMap(ingress).toString)
    }
    environment.put("SLACKWATER_APPLICATION", applicationId)
    environment.put("PYSPARK_GATEWAY_PORT", gatewayPort.toString)
    environment.put("PYSPARK_GATEWAY_SECRET", gatewaySecret)
    Interpreter.packageRoot.foreach { root =>
      val path = root.toString +: Option(environment.get("PYTHONPATH")).filter(_.nonEmpty).toSeq
      environment.put("PYTHONPATH", path.mkString(java.io.File.pathSeparator))
    }
    try builder.start()
    catch { case error: java.io.IOException => throw failed(error.getMessage) }
  }

  private def failed(reason: String): SlackwaterAnalysisException =
    Errors.user("SLACKWATER_COORDINATOR_START", "reason" -> reason, "log" -> s"of $location")

  /** Never leaves a pipe unread: the process would stop when it is full. */
  private def passLines(stream: InputStream, first: CompletableFuture[String]): Unit = {
    val reader = new BufferedReader(new InputStreamReader(stream, UTF_8))
    try {
      first.complete(reader.readLine())
      Iterator.continually(reader.readLine()).takeWhile(_ != null).foreach(line => logDebug(line))
    } catch { case _: java.io.IOException => first.complete(null) }
  }

  private final class ErrorOutput(stream: InputStream) {
    private val lines = mutable.Queue.empty[String]
    private val reader = Threads.start("slackwater-coordinator-err") {
      val input = new BufferedReader(new InputStreamReader(stream, UTF_8))
      try Iterator.continually(input.readLine()).takeWhile(_ != null).foreach(keep)
      catch { case _: java.io.IOException => () }
    }

    private def keep(line: String): Unit = synchronized {
      logInfo(s"coordinator: $line")
      lines.enqueue(line)
      if (lines.size > 20) lines.dequeue()
    }

    /** The last line: of a Python traceback, the one that names the error. */
    def last: Option[String] = {
      reader.join(1000)
      synchronized(lines.reverseIterator.map(_.trim).find(_.nonEmpty))
    }
  }
}

object Launch {

  /** Files and names are UTF-8 whatever the locale is. With `-m` modules would come from the working
    * folder first, where a user may have a `types.py` of his own: Python puts it there as `''`.
    */
  private val arguments = Seq(
    "-X",
    "utf8",
    "-c",
    "import sys; sys.path = [each for each in sys.path if each]; import runpy; " +
      "runpy.run_module('slackwater.server', run_name='__main__', alter_sys=True)"
  )
  private val startLimitMs = 60000L
  private val toldAfterMs = 2000L

  /** What people at a shell are told; the log of other applications leaves it out. */
  private val console = LoggerFactory.getLogger("io.slackwater.console")
}
