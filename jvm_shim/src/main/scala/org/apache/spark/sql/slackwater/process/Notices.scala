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
  private lazy val haveTerminal =
    isShell ||
      command.contains("SparkSubmit") && command.matches(raw"(?s).*(pyspark-shell|\.py)(\s.*)?")

  private def command = sys.props.getOrElse("sun.java.command", "")
  private def isShell = command.contains("SparkSQLCLIDriver")

  /** Somebody types at the shell of this process, and sees its answers. */
  private lazy val isTypedAt = isShell && System.console() != null
  private var shown = 0

  @volatile private var listener: Option[Consumer[String]] = None
  @volatile private var listenerIsWatched = false

  /** Those of threads in which the listener cannot be called; when there are more, the log has them. */
  private val untold = new LinkedBlockingQueue[String](100)

  /** Gives notices to the program that started this driver, as JSON, instead of its terminal: in the
    * threads that work for it, and by `next` those of others. If somebody watches it, `next` also has
    * what statements wait for.
    */
  def listen(to: Consumer[String], watched: Boolean): Unit = {
    listener = Some(to)
    listenerIsWatched = watched
  }

  def isListenedTo: Boolean = listener.isDefined

  /** Whether somebody sees what a statement waits for: at a terminal, or in a notebook. */
  private[process] def areWatched: Boolean = isTypedAt || listenerIsWatched

  /** Shows what a statement waits for, in place of what was shown before; None: it goes on. */
  private[process] def waiting(text: Option[String]): Unit = synchronized {
    if (isTypedAt) {
      // Spaces over what was there serve terminals of all kinds.
      System.err.print(
        s"\r${text.getOrElse("").padTo(shown, ' ')}${if (text.isEmpty) "\r" else ""}"
      )
      System.err.flush()
      shown = text.fold(0)(_.length)
    } else {
      val _ = untold.offer(Json.obj().put("waits_for", text.orNull).toString)
    }
  }

  /** The next notice that the listener was not called with, waiting so long for one; null: none. */
  def next(waitMs: Long): String = untold.poll(waitMs, TimeUnit.MILLISECONDS)

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
      else untold.offer(notice.toString)
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
