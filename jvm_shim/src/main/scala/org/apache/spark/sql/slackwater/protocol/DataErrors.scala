package org.apache.spark.sql.slackwater.protocol

import org.apache.spark.sql.AnalysisException

/** The errors that reading and writing raise, in the words of the catalogue. */
object DataErrors {
  def readOnly(name: String, kind: String): AnalysisException =
    Errors.user(
      "SLACKWATER_READ_ONLY_RELATION",
      "objectName" -> name,
      "kind" -> kind.replace('-', ' ')
    )

  def wrongKind(name: String, actual: String, expected: String): AnalysisException =
    Errors.user(
      "SLACKWATER_WRONG_KIND",
      "objectName" -> name,
      "actualKind" -> actual,
      "expectedKind" -> expected
    )

  def severalInserts(): AnalysisException = unsupported(
    "An INSERT into several places of which some are no tables of Slackwater",
    "Its commit would not be one. Write an INSERT statement for each."
  )

  def notNull(table: String, column: String): AnalysisException =
    Errors.user("SLACKWATER_NOT_NULL_VIOLATION", "columnName" -> column, "objectName" -> table)

  def nullAsserted(view: String, column: String): AnalysisException =
    Errors.user("SLACKWATER_NULL_ASSERTED", "columnName" -> column, "objectName" -> view)

  def elsewhere(statement: String, name: String, catalog: String): AnalysisException =
    Errors.user(
      "SLACKWATER_WRONG_CATALOG",
      "statement" -> statement,
      "objectName" -> name,
      "catalogName" -> catalog
    )

  def indexMemory(name: String, wanted: Long, used: Long, limit: Long): AnalysisException =
    Errors.user(
      "SLACKWATER_INDEX_MEMORY",
      "objectName" -> name,
      "wanted" -> wanted.toString,
      "used" -> used.toString,
      "limit" -> limit.toString
    )

  def resultSize(limit: Long): AnalysisException =
    Errors.user("SLACKWATER_RESULT_SIZE", "limit" -> limit.toString)

  def temporaryFunction(name: String): AnalysisException =
    Errors.user("SLACKWATER_TEMPORARY_FUNCTION", "functionName" -> name)

  def temporaryView(name: String): AnalysisException =
    Errors.user("SLACKWATER_TEMPORARY_VIEW", "viewName" -> name)

  def mzNowComparison(expression: String, kind: String, advice: String): AnalysisException =
    Errors.user(
      "SLACKWATER_MZ_NOW_COMPARISON",
      "expression" -> expression,
      "type" -> kind,
      "milliseconds" -> advice
    )

  def limitOfRecursion(): AnalysisException = unsupported(
    "LIMIT without ORDER BY over a recursion, in a materialized view,",
    "Give it an ORDER BY, and let a condition end the recursion."
  )

  def unbound(name: String): AnalysisException =
    Errors.user("SLACKWATER_UNBOUND_RELATION", "objectName" -> name)

  def invalidAsOf(expression: String, reason: String): AnalysisException =
    Errors.user("SLACKWATER_INVALID_AS_OF", "expression" -> expression, "reason" -> reason)

  def changesBounds(name: String, first: String, last: String): AnalysisException =
    Errors.user(
      "SLACKWATER_CHANGES_BOUNDS",
      "objectName" -> name,
      "first" -> first,
      "last" -> last
    )

  def unsupported(feature: String, advice: String): AnalysisException =
    Errors.user("SLACKWATER_UNSUPPORTED", "feature" -> feature, "advice" -> advice)

  def unknownOption(statement: String, option: String, known: Seq[String]): AnalysisException =
    Errors.user(
      "SLACKWATER_UNKNOWN_OPTION",
      "statement" -> statement,
      "option" -> option,
      "options" -> known.mkString(", ")
    )

  def invalidOption(
      statement: String,
      option: String,
      value: String,
      reason: String
  ): AnalysisException =
    Errors.user(
      "SLACKWATER_INVALID_OPTION",
      "statement" -> statement,
      "option" -> option,
      "value" -> value,
      "reason" -> reason
    )

  /** Of a statement that our parser never sees, as it is part of a larger one. */
  def inScript(statement: String): AnalysisException = unsupported(
    s"$statement in a block of SQL scripting",
    s"EXECUTE IMMEDIATE '$statement ..' runs it there."
  )

  /** Of a stream whose collection was dropped, and made anew under its name. */
  def streamReplaced(name: String, before: String, now: String): AnalysisException =
    Errors.user(
      "SLACKWATER_SOURCE_REPLACED",
      "objectName" -> s"The stream of $name",
      "what" -> name,
      "before" -> before,
      "now" -> now,
      "advice" -> "Start it with a new checkpoint."
    )

  def noQuery(): AnalysisException =
    unsupported("A statement in place of a query", "Name what is to be read with SELECT.")

  def nameOf(table: ObjectDescription): String = s"slackwater.${table.schemaName}.${table.name}"
}
