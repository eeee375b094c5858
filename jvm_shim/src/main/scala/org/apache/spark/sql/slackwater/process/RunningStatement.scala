package org.apache.spark.sql.slackwater.process

import java.util.UUID

import scala.util.Try

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.SparkContext
import org.apache.spark.sql.catalyst.plans.logical.{AnalysisOnlyCommand, LogicalPlan}
import org.apache.spark.sql.execution.SQLExecution

/** The statement of Spark's that the thread runs, as the history of statements knows it. */
private[slackwater] object RunningStatement {

  /** So much of a text is told. */
  private val most = 10000

  /** The number of its SQL execution: that of the outermost one, which others may run within. */
  def execution(context: SparkContext): Option[String] =
    Option(context.getLocalProperty(SQLExecution.EXECUTION_ROOT_ID_KEY))

  /** The name of the statement in the history: that number, or a name of its own. */
  def name(context: SparkContext): String =
    execution(context).getOrElse(UUID.randomUUID.toString)

  /** Puts the statement's text into a request, if it has one; `planned` is planned without a number.
    */
  def describe(
      context: SparkContext,
      body: ObjectNode,
      planned: Option[LogicalPlan] = None
  ): Unit = {
    val running = execution(context)
      .flatMap(id => Try(SQLExecution.getQueryExecution(id.toLong)).toOption)
      .flatMap(Option(_))
      .map(_.logical)
    running.orElse(planned).flatMap(text).foreach(sql => body.put("sql", sql.take(most)))
  }

  /** The text of the plan's root. Of an action of a DataFrame, and of commands that Spark has made of
    * others, it is the text of all that comes from one below it. Texts of views are not the
    * statement's.
    */
  private def text(plan: LogicalPlan): Option[String] = own(plan).orElse {
    val found = below(plan).flatMap(_.collect { case node if own(node).isDefined => own(node).get })
    Option.when(found.distinct.size == 1)(found.head)
  }

  private def own(node: LogicalPlan): Option[String] =
    node.origin.sqlText.filter(_ => node.origin.objectType.isEmpty)

  private def below(plan: LogicalPlan): Seq[LogicalPlan] = plan match {
    case command: AnalysisOnlyCommand => command.childrenToAnalyze
    case other                        => other.children
  }
}
