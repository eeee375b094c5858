package org.apache.spark.sql.slackwater.binding

import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.expressions.{
  Expression,
  ExpressionInfo,
  LeafExpression,
  Literal,
  Unevaluable
}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.trees.CurrentOrigin
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.errors.QueryCompilationErrors
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.slackwater.process.SparkSessions
import org.apache.spark.sql.types.{DataType, LongType}

/** The statement's timestamp in milliseconds; binding replaces it by the value. */
case class MzNow() extends LeafExpression with Unevaluable {
  override def nullable: Boolean = false
  override def dataType: DataType = LongType
  override def prettyName: String = MzNow.Name
}

object MzNow {
  val Name = "mz_now"

  def isIn(expression: Expression): Boolean = expression.exists(_.isInstanceOf[MzNow])

  /** The analyzed plan with the time in the place of the function. */
  def at(plan: LogicalPlan, timeMs: Long): LogicalPlan = {
    val settled = plan.transformAllExpressionsWithSubqueries { case MzNow() => Literal(timeMs) }
    settled.setAnalyzed()
    settled
  }

  /** What Spark says of a function that it does not have. */
  private[binding] def unknown(name: String): Throwable = {
    val manager = SparkSession.active.sessionState.catalogManager
    val path = manager.currentCatalog.name +: manager.currentNamespace.toSeq
    QueryCompilationErrors.unresolvedRoutineError(
      Seq(name),
      Seq("system.builtin", "system.session", path.mkString(".")),
      CurrentOrigin.get
    )
  }

  type Description = (FunctionIdentifier, ExpressionInfo, Seq[Expression] => Expression)

  val description: Description = (
    FunctionIdentifier(Name),
    new ExpressionInfo(
      classOf[MzNow].getName,
      null,
      Name,
      "mz_now() - The time at which the query reads, in milliseconds since the epoch.",
      "",
      "",
      "",
      "",
      "",
      "",
      ""
    ),
    arguments =>
      if (!SparkSessions.isEnabled(SQLConf.get)) throw unknown(Name)
      else if (arguments.isEmpty) MzNow()
      else throw QueryCompilationErrors.wrongNumArgsError(Name, Seq(0), arguments.size)
  )
}
