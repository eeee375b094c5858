package org.apache.spark.sql.slackwater.binding.analysis

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.analysis.{AnalysisContext, UnresolvedFunction}
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.UNRESOLVED_FUNCTION
import org.apache.spark.sql.classic
import org.apache.spark.sql.connector.catalog.CatalogManager
import org.apache.spark.sql.slackwater.process.SparkSessions

/** Calls of functions that a definition keeps, in the coordinator's own sessions.
  *
  * Spark asks the catalog whether it has a function before it looks among those that the session has
  * loaded. So this is a rule for hints: they come before that question.
  */
private[slackwater] final case class ResolveKept(session: SparkSession) extends Rule[LogicalPlan] {
  private lazy val state = session.asInstanceOf[classic.SparkSession].sessionState

  override def apply(plan: LogicalPlan): LogicalPlan =
    if (!SparkSessions.isInternal(session)) plan
    else {
      plan.resolveExpressionsWithPruning(_.containsPattern(UNRESOLVED_FUNCTION)) {
        case call: UnresolvedFunction =>
          kept(call.nameParts).fold[Expression](call)(called(call, _))
      }
    }

  private def kept(name: Seq[String]): Option[FunctionIdentifier] =
    ofCatalog(name).filter(state.functionRegistry.functionExists)

  private def called(call: UnresolvedFunction, id: FunctionIdentifier): Expression =
    state.functionRegistry.lookupFunction(id, call.arguments) match {
      case aggregate: AggregateFunction =>
        aggregate.toAggregateExpression(call.isDistinct, call.filter)
      case other => other
    }

  /** The function of the session catalog that a name means, if there is one. */
  private def ofCatalog(name: Seq[String]): Option[FunctionIdentifier] = name match {
    case Seq(catalog, schema, function) if isSessionCatalog(catalog) =>
      Some(identifier(schema, function))
    case Seq(schema, function) if isSessionCatalog(current.head) =>
      Some(identifier(schema, function))
    case Seq(function) if state.catalog.lookupBuiltinOrTempFunction(function).isEmpty =>
      current match {
        case Seq(catalog, schema) if isSessionCatalog(catalog) =>
          Some(identifier(schema, function))
        case _ => None
      }
    case _ => None
  }

  private def identifier(schema: String, function: String) =
    FunctionIdentifier(function, Some(schema), Some(CatalogManager.SESSION_CATALOG_NAME))

  private def isSessionCatalog(name: String) =
    name.equalsIgnoreCase(CatalogManager.SESSION_CATALOG_NAME)

  /** The catalog and the namespace in which names are looked up. */
  private def current: Seq[String] = {
    val manager = state.catalogManager
    val ofContext = AnalysisContext.get.catalogAndNamespace
    if (ofContext.nonEmpty) ofContext
    else manager.currentCatalog.name +: manager.currentNamespace.toSeq
  }
}
