package org.apache.spark.sql.slackwater.parser

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.parser._
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, SetCatalogAndNamespace}
import org.apache.spark.sql.internal.VariableSubstitution
import org.apache.spark.sql.slackwater.process.SparkSessions
import org.apache.spark.sql.slackwater.protocol.{DataErrors, Json}
import org.apache.spark.sql.slackwater.shims.DelegatingParser
import org.apache.spark.sql.slackwater.thrift.ThriftServer

/** Spark's parser, with Slackwater's statements and `AS OF` in front of it.
  *
  * A text that is not Slackwater's goes to `delegate` as it is, without a call of the coordinator.
  */
class SlackwaterParser(session: SparkSession, val delegate: ParserInterface)
    extends DelegatingParser {

  private val classifier =
    new StatementClassifier(
      SparkSessions.inSlackwater(session),
      SparkSessions.isCatalog(session, _)
    )

  override def parsePlan(text: String): LogicalPlan =
    noticed(named(statement(text, parameters = None)(delegate.parsePlan(text))))

  override def parsePlanWithParameters(text: String, context: ParameterContext): LogicalPlan =
    noticed(named(statement(text, Some(context))(delegate.parsePlanWithParameters(text, context))))

  override def parseQuery(text: String): LogicalPlan =
    withAsOf(text, None)(delegate.parseQuery(text))(delegate.parseQuery(_))

  /** Where connections share a session, its first USE is what tells of a new one. */
  private def noticed(plan: LogicalPlan): LogicalPlan = {
    if (plan.isInstanceOf[SetCatalogAndNamespace]) ThriftServer.look()
    plan
  }

  private def statement(text: String, parameters: Option[ParameterContext])(
      spark: => LogicalPlan
  ): LogicalPlan =
    if (classifier.mayBeOurs(text) && SparkSessions.isEnabled(session)) {
      if (StatementClassifier.endsBlock(text) && !SparkSessions.hasCalled(session)) NoBlockToEnd
      else
        command(text, parameters).getOrElse(withAsOf(text, parameters)(spark)(parse(_, parameters)))
    } else withAsOf(text, parameters)(spark)(parse(_, parameters))

  /** In our catalog, what Spark refuses without a condition for users gets one. */
  private def named(plan: => LogicalPlan): LogicalPlan =
    try plan
    catch {
      case error: ParseException
          if isUnnamed(error) && SparkSessions
            .isEnabled(session) && SparkSessions.inSlackwater(session) =>
        val reason = error.getMessage.linesIterator.map(_.trim).find(_.nonEmpty).getOrElse("")
        throw DataErrors.unsupported("This form of the statement", reason)
    }

  private def isUnnamed(error: ParseException): Boolean =
    Option(error.getCondition).forall(_.startsWith("_LEGACY"))

  private def parse(text: String, parameters: Option[ParameterContext]): LogicalPlan =
    parameters.fold(delegate.parsePlan(text))(delegate.parsePlanWithParameters(text, _))

  /** The command that the coordinator makes of `text`; None when it leaves it to Spark. */
  private def command(text: String, parameters: Option[ParameterContext]): Option[LogicalPlan] = {
    val substituted = new VariableSubstitution().substitute(text)
    val body = SparkSessions.statement(session)
    body.put("text", substituted)
    val coordinator = SparkSessions.coordinator(session)
    if (TemporaryViews.areNamedIn(session, substituted)) {
      val found = coordinator.call("/v1/query", body)
      Json.optional(found.path("query")).foreach { query =>
        TemporaryViews.refuse(session, delegate.parsePlan(query.asText))
      }
    }
    val planned = coordinator.call("/v1/plan", body)
    Option.when(planned.path("kind").asText == "command") {
      if (parameters.exists(Parameters.nonEmpty)) {
        throw DataErrors.unsupported(
          "A parameter in a statement of Slackwater",
          "Write the value into the statement's text."
        )
      }
      val columns = Json.schema(planned.get("schema"))
      SlackwaterCommand(substituted, columns, planned.path("planned_at").asLong)
    }
  }

  /** Spark's reading of the whole text wins: `SELECT 1 AS of` is an alias. */
  private def withAsOf(text: String, parameters: Option[ParameterContext])(
      spark: => LogicalPlan
  )(parse: String => LogicalPlan): LogicalPlan =
    AsOfClause.find(text) match {
      case None         => spark
      case Some(clause) =>
        try spark
        catch {
          case error: ParseException if SparkSessions.isEnabled(session) =>
            placed(clause, parameters, parse).getOrElse(throw error)
        }
    }

  private def placed(
      clause: AsOfClause,
      parameters: Option[ParameterContext],
      parse: String => LogicalPlan
  ): Option[LogicalPlan] = parameters match {
    case Some(context) if Parameters.nonEmpty(context) =>
      val (before, behind) = Parameters.split(context, clause.prefix)
      val plan = delegate.parsePlanWithParameters(clause.prefix, before)
      clause.place(plan, time(clause, Parameters.bound(_, behind)))
    case _ => clause.place(parse(clause.prefix), time(clause, identity))
  }

  private def time(clause: AsOfClause, bind: String => String): Expression =
    try delegate.parseExpression(bind(clause.time))
    catch {
      case _: ParseException =>
        throw DataErrors.invalidAsOf(clause.time, "it is not one expression")
    }
}
