package org.apache.spark.sql.slackwater.scan.optimizer

import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.slackwater.scan.logical.InlineRows

/** Computes projections and filters over inline rows at once, so that no job is needed. */
private[slackwater] object FoldInlineRows extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformUp {
    case project @ Project(columns, local: InlineRows) if columns.forall(foldable) =>
      attempt(project) {
        val projection = projected(columns, local)
        val output = columns.map(_.toAttribute.asInstanceOf[AttributeReference])
        local.copy(output = output, rows = local.rows.map(row => projection(row).copy()))
      }
    case filter @ Filter(condition, local: InlineRows) if foldable(condition) =>
      attempt(filter) {
        val predicate =
          Predicate.createInterpreted(BindReferences.bindReference(condition, local.output))
        predicate.initialize(0)
        local.copy(rows = local.rows.filter(predicate.eval))
      }
    case Limit(IntegerLiteral(count), local: InlineRows) =>
      local.copy(rows = local.rows.take(count))
  }

  /** Code is made where it is worth it. */
  private def projected(columns: Seq[NamedExpression], local: InlineRows): UnsafeProjection =
    if (local.rows.sizeIs > fewRows) UnsafeProjection.create(columns, local.output)
    else
      InterpretedUnsafeProjection.createProjection(
        BindReferences.bindReferences(columns, local.output)
      )

  private val fewRows = 1000

  private def foldable(expression: Expression): Boolean =
    expression.deterministic && !expression.exists {
      case _: Attribute                                                     => false
      case _: PlanExpression[_] | _: Unevaluable | _: UserDefinedExpression => true
      case _                                                                => false
    }

  /** An error in the data is raised when the statement runs, and only if it gets there. */
  private def attempt(original: LogicalPlan)(fold: => LogicalPlan): LogicalPlan =
    try fold
    catch { case NonFatal(_) => original }
}
