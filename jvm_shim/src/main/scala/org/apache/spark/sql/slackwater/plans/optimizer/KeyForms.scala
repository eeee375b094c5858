package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.slackwater.values.{Comparable, Keys}
import org.apache.spark.sql.types._

/** What rows are grouped, partitioned or joined by has a form in which equal values have the same
  * bytes: of texts with a collation it is the collation's key, of maps the sorted entries.
  *
  * A group has the map that its entries make, and of the texts that are equal the least by bytes:
  * Spark takes any of them.
  */
private[plans] object KeyForms extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformUp {
    case aggregate: Aggregate if aggregate.groupingExpressions.exists(isRemade) =>
      grouped(aggregate)
    case window: Window if window.partitionSpec.exists(Keys.isMade) => partitioned(window)
    case join: Join                                                 =>
      join.copy(condition = join.condition.map(_.transform {
        case EqualTo(left, right) if Keys.isMade(left) => EqualTo(Keys.of(left), Keys.of(right))
        case EqualNullSafe(left, right) if Keys.isMade(left) =>
          EqualNullSafe(Keys.of(left), Keys.of(right))
      }))
  }

  /** A column that is grouped by and has a form. */
  private def isRemade(group: Expression): Boolean = group match {
    case column: Attribute => Keys.isMade(column) && (hasText(column) != hasMap(column))
    case _                 => false
  }

  private def hasText(value: Expression): Boolean =
    value.dataType.existsRecursively(Comparable.isCollated)

  private def hasMap(value: Expression): Boolean =
    value.dataType.existsRecursively(_.isInstanceOf[MapType])

  private def grouped(whole: Aggregate): LogicalPlan = {
    val forms = whole.groupingExpressions.collect {
      case column: Attribute if isRemade(column) => column -> Alias(Keys.of(column), column.name)()
    }
    val keys = AttributeMap(forms.map { case (column, form) => column -> form.toAttribute })
    def over(e: Expression): Expression = e match {
      case call: AggregateExpression                  => call
      case column: Attribute if keys.contains(column) => shown(column, keys(column))
      case other                                      => other.mapChildren(over)
    }
    val results = whole.aggregateExpressions.map {
      case column: Attribute if keys.contains(column) =>
        Alias(shown(column, keys(column)), column.name)(column.exprId, column.qualifier)
      case other => over(other).asInstanceOf[NamedExpression]
    }
    whole.copy(
      groupingExpressions = whole.groupingExpressions.map {
        case column: Attribute => keys.getOrElse(column, column)
        case other             => other
      },
      aggregateExpressions = results,
      child = Project(whole.child.output ++ forms.map(_._2), whole.child)
    )
  }

  private def shown(column: Attribute, key: Attribute): Expression =
    if (hasMap(column)) Comparable.restored(key, column.dataType)
    else {
      val named = Seq(Literal("bytes"), Keys.bytes(column), Literal("value"), column)
      GetStructField(Min(CreateNamedStruct(named)).toAggregateExpression(), 1)
    }

  private def partitioned(window: Window): LogicalPlan = {
    val functions = window.windowExpressions.map(_.transform { case spec: WindowSpecDefinition =>
      spec.copy(partitionSpec = spec.partitionSpec.map(Keys.of))
    }.asInstanceOf[NamedExpression])
    window.copy(
      windowExpressions = functions,
      partitionSpec = window.partitionSpec.map(Keys.of)
    )
  }
}
