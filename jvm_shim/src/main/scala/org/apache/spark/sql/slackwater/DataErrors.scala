package org.apache.spark.sql.slackwater

import org.apache.spark.sql.AnalysisException

/** The errors that reading and writing raise, in the words of the catalogue. */
private[slackwater] object DataErrors {
  private lazy val catalogue = {
    val stream = getClass.getResourceAsStream("/error/slackwater-error-conditions.json")
    try Wire.parse(new String(stream.readAllBytes(), "UTF-8"))
    finally stream.close()
  }

  def readOnly(table: ObjectDescription): AnalysisException =
    error(
      "SLACKWATER_READ_ONLY_RELATION",
      "objectName" -> nameOf(table),
      "kind" -> table.kind.replace('-', ' ')
    )

  def unbound(name: String): AnalysisException =
    error("SLACKWATER_UNBOUND_RELATION", "objectName" -> name)

  def invalidAsOf(expression: String, reason: String): AnalysisException =
    error("SLACKWATER_INVALID_AS_OF", "expression" -> expression, "reason" -> reason)

  def unsupported(feature: String, advice: String): AnalysisException =
    error("SLACKWATER_UNSUPPORTED", "feature" -> feature, "advice" -> advice)

  def nameOf(table: ObjectDescription): String = s"slackwater.${table.schemaName}.${table.name}"

  private def error(condition: String, parameters: (String, String)*): AnalysisException = {
    val entry = catalogue.get(condition)
    val lines = (0 until entry.get("message").size).map(i => entry.get("message").get(i).asText)
    new AnalysisException(
      condition,
      entry.get("sqlState").asText,
      lines.mkString("\n"),
      parameters.toMap,
      None,
      None
    )
  }
}
