package org.apache.spark.sql.slackwater.plans

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.slackwater.scan.Comparable
import org.apache.spark.sql.types._

/** What rows are grouped, partitioned or joined by has a form in which equal values have the same
  * bytes: of texts with a collation it is the collation's key, of maps the sorted entries.
  *
  * A group has the map that its entries make, and of the texts that are equal the least by bytes:
  * Spark takes any of them.
  */
private[plans] object KeyForms extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformUp {
    case aggregate: Aggregate if aggregate.groupingExpressions.exists(isMade) => grouped(aggregate)
    case window: Window if window.partitionSpec.exists(hasForm)               => partitioned(window)
    case join: Join                                                           =>
      join.copy(condition = join.condition.map(_.transform {
        case EqualTo(left, right) if hasForm(left)       => EqualTo(of(left), of(right))
        case EqualNullSafe(left, right) if hasForm(left) => EqualNullSafe(of(left), of(right))
      }))
  }

  /** The form of a value in which equal ones have the same bytes. */
  def of(value: Expression): Expression =
    if (hasForm(value)) Comparable(value)(CollationKey(_)) else value

  /** Bytes in which values that are equal differ if they are not the same. */
  def bytes(value: Expression): Expression =
    if (Comparable.isCollated(value.dataType)) Cast(value, BinaryType) else RowBytes(Seq(value))

  private def hasForm(value: Expression): Boolean =
    Comparable.isNeeded(value.dataType) &&
      RowOrdering.isOrderable(Comparable(value)(CollationKey(_)).dataType)

  /** A column that is grouped by and has a form. */
  private def isMade(group: Expression): Boolean = group match {
    case column: Attribute => hasForm(column) && (hasText(column) != hasMap(column))
    case _                 => false
  }

  private def hasText(value: Expression): Boolean =
    value.dataType.existsRecursively(Comparable.isCollated)

  private def hasMap(value: Expression): Boolean =
    value.dataType.existsRecursively(_.isInstanceOf[MapType])

  private def grouped(whole: Aggregate): LogicalPlan = {
    val forms = whole.groupingExpressions.collect {
      case column: Attribute if isMade(column) => column -> Alias(of(column), column.name)()
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
      val named = Seq(Literal("bytes"), bytes(column), Literal("value"), column)
      GetStructField(Min(CreateNamedStruct(named)).toAggregateExpression(), 1)
    }

  private def partitioned(window: Window): LogicalPlan = {
    val functions = window.windowExpressions.map(_.transform { case spec: WindowSpecDefinition =>
      spec.copy(partitionSpec = spec.partitionSpec.map(of))
    }.asInstanceOf[NamedExpression])
    window.copy(
      windowExpressions = functions,
      partitionSpec = window.partitionSpec.map(of)
    )
  }
}
