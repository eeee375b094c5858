package org.apache.spark.sql.slackwater.parser

import java.util.Locale

import scala.util.Try

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.{CTESubstitution, UnresolvedRelation}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.slackwater.lexer.Lexer
import org.apache.spark.sql.slackwater.protocol.DataErrors

/** The temporary views of a session, in statements of ours that read.
  *
  * In the session they win over relations of the same name. The coordinator, which resolves the
  * names of these statements, does not know them: it would find another relation, or none.
  */
private[parser] object TemporaryViews {

  /** Whether a word of the statement is the name of one. */
  def areNamedIn(session: SparkSession, text: String): Boolean = {
    val catalog = session.sessionState.catalog
    val views = catalog.listTempViews(catalog.globalTempDatabase, "*")
    views.nonEmpty && {
      val names = Lexer.names(text)
      views.exists(view => names(view.identifier.table.toLowerCase(Locale.ROOT)))
    }
  }

  /** Raises SLACKWATER_TEMPORARY_VIEW if the query reads one. What cannot be parsed reads none. */
  def refuse(session: SparkSession, parsed: => LogicalPlan): Unit =
    Try(CTESubstitution(parsed)).foreach { plan =>
      plan
        .collectWithSubqueries { case named: UnresolvedRelation => named.multipartIdentifier }
        .find(session.sessionState.catalog.isTempView)
        .foreach(name => throw DataErrors.temporaryView(name.mkString(".")))
    }
}
