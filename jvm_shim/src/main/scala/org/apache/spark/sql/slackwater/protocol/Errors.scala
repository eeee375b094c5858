package org.apache.spark.sql.slackwater.protocol

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.QueryContext
import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.catalyst.parser.ParseException
import org.apache.spark.sql.catalyst.trees.Origin

/** An error of Slackwater with its condition and SQLSTATE. It never has a cause: front ends would
  * print it as part of the message.
  */
class SlackwaterAnalysisException(
    condition: String,
    state: String,
    text: String,
    parameters: Map[String, String]
) extends AnalysisException(
      message = Errors.fullMessage(condition, state, text),
      errorClass = Some(condition),
      messageParameters = parameters,
      sqlState = Some(state),
      messageTemplate = Some(text)
    )

/** A syntax error of Slackwater, with its position in the statement. */
class SlackwaterParseException(
    condition: String,
    state: String,
    text: String,
    parameters: Map[String, String],
    command: String,
    position: Origin
) extends ParseException(
      Some(command),
      position,
      "PARSE_SYNTAX_ERROR",
      Map("error" -> "", "hint" -> ""),
      Array.empty[QueryContext]
    ) {
  override def getCondition: String = condition
  override def getErrorClass: String = condition
  override def getSqlState: String = state
  override def getMessageParameters: java.util.Map[String, String] = parameters.asJava
  override def getDefaultMessageTemplate: String = text

  override def getMessage: String = {
    val at =
      for (line <- position.line; column <- position.startPosition)
        yield s" (line $line, pos $column)\n\n== SQL ==\n${Errors.marked(command, line, column)}"
    Errors.fullMessage(condition, state, text) + at.getOrElse("")
  }
}

/** Makes the exceptions that users see, from the catalogue or from the coordinator's answer. */
object Errors {

  private val placeholder = "<([A-Za-z_][A-Za-z0-9_]*)>".r

  private lazy val catalogue: JsonNode = {
    val resource = "/error/slackwater-error-conditions.json"
    val stream = getClass.getResourceAsStream(resource)
    try Json.mapper.readTree(stream)
    finally stream.close()
  }

  /** The error `condition` of the catalogue; `parameters` are those of its message. */
  def user(condition: String, parameters: (String, String)*): SlackwaterAnalysisException = {
    val entry = catalogue.get(condition)
    val template = entry.get("message").elements.asScala.map(_.asText).mkString("\n")
    val values = parameters.toMap
    val text = placeholder.replaceAllIn(
      template,
      found => scala.util.matching.Regex.quoteReplacement(values(found.group(1)))
    )
    new SlackwaterAnalysisException(condition, entry.get("sqlState").asText, text, values)
  }

  /** Whether somebody has cancelled the statement that fails with it. */
  def isCancellation(error: Throwable): Boolean = error match {
    case known: AnalysisException => known.getCondition == "SLACKWATER_CANCELED"
    case _                        => false
  }

  /** The exception for an `error` object of the protocol. `command` is the statement, if any. */
  def of(error: JsonNode, command: Option[String]): AnalysisException = {
    val condition = error.path("condition").asText("SLACKWATER_INTERNAL")
    val state = error.path("sqlstate").asText("XX000")
    val text = error.path("message").asText("")
    val parameters = error
      .path("parameters")
      .properties
      .asScala
      .map { entry =>
        entry.getKey -> entry.getValue.asText
      }
      .toMap
    val position = error.path("position")
    command match {
      case Some(statement) if position.isObject && state == "42601" =>
        val origin = Origin(Some(position.path("line").asInt), Some(position.path("column").asInt))
        new SlackwaterParseException(condition, state, text, parameters, statement, origin)
      case _ => new SlackwaterAnalysisException(condition, state, text, parameters)
    }
  }

  private[slackwater] def fullMessage(condition: String, state: String, text: String): String =
    s"[$condition] $text SQLSTATE: $state"

  /** The statement with a mark below the column, as Spark prints it. */
  private[slackwater] def marked(command: String, line: Int, column: Int): String =
    command.linesIterator.zipWithIndex
      .map {
        case (text, index) if index + 1 == line => s"$text\n${"-" * column}^^^"
        case (text, _)                          => text
      }
      .mkString("\n")
}
