package org.apache.spark.sql.slackwater.plans

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.slackwater.values.RowBytes

/** A column of a row that is shown to people.
  *
  * @param collection
  *   whose column it is; None: it is computed
  * @param isRead
  *   whether what fails is computed of it
  */
private[slackwater] final case class ShownColumn(
    column: Attribute,
    name: String,
    collection: Option[String],
    isRead: Boolean
)

/** The rows at a place of a query at which something is computed that may fail. */
private[slackwater] sealed trait FailurePlace {
  def rows: LogicalPlan

  /** Whether it fails, over `rows`. */
  def fails: Expression

  /** The columns of `rows` that say how it fails. */
  def values: Seq[Attribute]
  def shown: Seq[ShownColumn]
  def areGroups: Boolean

  /** Of the rows that fail the first in ascending order: `values`, then what is shown, as texts. */
  final def first(timeZone: String): LogicalPlan = {
    val columns = shown.map(_.column).filter(c => RowOrdering.isOrderable(c.dataType))
    val order = (columns :+ RowBytes(rows.output)).map(SortOrder(_, Ascending))
    val one = Literal(1)
    val failing = Sort(order, global = true, Filter(fails, rows))
    val texts = shown.map(each => ToPrettyString(each.column, Some(timeZone)))
    val wanted = (values ++ texts).zipWithIndex.map { case (value, i) => Alias(value, s"c$i")() }
    Project(wanted, GlobalLimit(one, LocalLimit(one, failing)))
  }
}

/** Rows of which `expressions` are computed. */
private[slackwater] final case class ExpressionFailurePlace(
    rows: LogicalPlan,
    expressions: Seq[Expression],
    shown: Seq[ShownColumn],
    areGroups: Boolean
) extends FailurePlace {
  override val values: Seq[Attribute] = {
    val read = AttributeSet(expressions)
    rows.output.filter(read.contains)
  }
  private val bound = expressions.map(BindReferences.bindReference(_, AttributeSeq(values)))

  override def fails: Expression = Fails(bound, values)

  /** What they raise for a row of `values`. */
  def raised(row: InternalRow): Option[Throwable] = Fails.raised(bound, row)
}

/** Groups with a sum that may be beyond its type.
  *
  * @param sums
  *   `values` are what they are grouped by
  */
private[slackwater] final case class SumFailurePlace(
    rows: LogicalPlan,
    fails: Expression,
    values: Seq[Attribute],
    shown: Seq[ShownColumn],
    sums: Aggregate
) extends FailurePlace {
  override def areGroups: Boolean = true

  /** The sums of one group, which fail as they do in the query. */
  def only(row: InternalRow): LogicalPlan = {
    val same = sums.groupingExpressions.zipWithIndex.map { case (group, i) =>
      EqualNullSafe(group, Literal(row.get(i, group.dataType), group.dataType))
    }
    val members = same.reduceOption[Expression](And).fold(sums.child)(Filter(_, sums.child))
    sums.copy(child = members)
  }
}

/** Rows for which a function of Python is called.
  *
  * @param captured
  *   what the call raises, of `PythonErrorCapture`
  */
private[slackwater] final case class PythonFailurePlace(
    below: LogicalPlan,
    captured: PythonUDF,
    shown: Seq[ShownColumn]
) extends FailurePlace {
  private val error = Alias(captured, "error")()

  override val rows: LogicalPlan = Project(below.output :+ error, below)
  override def fails: Expression = IsNotNull(error.toAttribute)
  override def values: Seq[Attribute] = Seq(error.toAttribute)
  override def areGroups: Boolean = false

  /** What the call raises for a row of `values`, as Spark tells it. */
  def raised(row: InternalRow): Throwable = PythonErrorCapture.raised(row.getUTF8String(0).toString)
}
