package org.apache.spark.sql.slackwater.process

import java.util.concurrent.{LinkedBlockingQueue, TimeUnit}
import java.util.function.Consumer

import scala.jdk.CollectionConverters._
import scala.util.Try
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode

import org.apache.hadoop.hive.ql.session.OperationLog

import org.apache.spark.internal.Logging
import org.apache.spark.sql.slackwater.protocol.Json

/** Shows what the coordinator has to say beside its answer: where the statement came from. */
object Notices extends Logging {

  /** One user's shell or program, whose terminal this process shares. A server's users are elsewhere:
    * for them there is SHOW NOTICES.
    */
  private lazy val haveTerminal = {
    val command = sys.props.getOrElse("sun.java.command", "")
    command.contains("SparkSQLCLIDriver") ||
    command.contains("SparkSubmit") && command.matches(raw"(?s).*(pyspark-shell|\.py)(\s.*)?")
  }

  @volatile private var listener: Option[Consumer[String]] = None

  /** Those of threads in which the listener cannot be called; when there are more, the log has them. */
  private val waiting = new LinkedBlockingQueue[String](100)

  /** Gives notices to the program that started this driver, as JSON, instead of its terminal: in the
    * threads that work for it, and by `next` those of others.
    */
  def listen(to: Consumer[String]): Unit = listener = Some(to)

  def isListenedTo: Boolean = listener.isDefined

  /** The next notice that the listener was not called with, waiting so long for one; null: none. */
  def next(waitMs: Long): String = waiting.poll(waitMs, TimeUnit.MILLISECONDS)

  private[slackwater] def show(notices: JsonNode): Unit = notices.elements.asScala.foreach(say)

  /** Says what no coordinator was needed for. */
  private[slackwater] def warn(message: String): Unit =
    say(Json.obj().put("severity", "WARNING").put("code", "01000").put("message", message))

  private def say(notice: JsonNode): Unit =
    if (!toClient(notice) && !toListener(notice)) {
      if (haveTerminal) System.err.println(text(notice)) else logInfo(text(notice))
    }

  /** In a Thrift server, the log of the operation that this thread runs, which beeline prints. */
  private def toClient(notice: JsonNode): Boolean =
    try {
      val log = Option(OperationLog.getCurrentOperationLog)
      log.foreach { found =>
        found.writeOperationLog(OperationLog.LoggingLevel.EXECUTION, s"${text(notice)}\n")
      }
      log.isDefined
    } catch { case NonFatal(_) | _: LinkageError => false }

  /** The program waits in its thread for what this one does, and takes the notice over the same
    * connection. For other threads it would have to listen at a port. A program that has ended, or
    * whose statement was interrupted, takes nothing.
    */
  private def toListener(notice: JsonNode): Boolean =
    listener.exists { to =>
      if (servesPython) Try(to.accept(notice.toString)).isSuccess
      else waiting.offer(notice.toString)
    }

  private def servesPython: Boolean =
    StackWalker
      .getInstance()
      .walk[Boolean](_.anyMatch(_.getClassName == "py4j.ClientServerConnection"))

  private def text(notice: JsonNode): String = {
    val hint = notice.path("hint").asText
    s"${notice.path("severity").asText("NOTICE")}: ${notice.path("message").asText}" +
      (if (hint.isEmpty) "" else s" $hint")
  }
}
