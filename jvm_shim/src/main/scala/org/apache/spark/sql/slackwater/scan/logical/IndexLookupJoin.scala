package org.apache.spark.sql.slackwater.scan.logical

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans._
import org.apache.spark.sql.catalyst.plans.logical._

/** A join of few rows with a collection, whose rows are looked up by an index.
  *
  * It is `probe <joinType> JOIN (SELECT values AS names FROM scan WHERE filter) ON condition`, but
  * that the condition is over the columns of the scan. Each of `keys` has the value of a key of the
  * index for each pair of rows that can meet the condition.
  *
  * @param nullSafe
  *   of each key, whether NULL is looked up
  * @param probeFirst
  *   whether the columns of the probe come first
  */
private[slackwater] final case class IndexLookupJoin(
    probe: LogicalPlan,
    scan: Indexed,
    index: IndexOffer,
    joinType: JoinType,
    keys: Seq[Expression],
    nullSafe: Seq[Boolean],
    filter: Option[Expression],
    condition: Expression,
    values: Seq[Expression],
    names: Seq[Attribute],
    probeFirst: Boolean
) extends UnaryNode {
  override def child: LogicalPlan = probe
  override lazy val producedAttributes: AttributeSet =
    AttributeSet(rows ++ names)

  /** The attributes of the rows that are looked up. */
  def rows: Seq[AttributeReference] = scan.named.map(_._2)

  /** What is found, as the join gives it. */
  def columns: Seq[Attribute] = joinType match {
    case LeftSemi | LeftAnti => Nil
    case LeftOuter           => names.map(_.withNullability(true))
    case _                   => names
  }

  override def output: Seq[Attribute] =
    if (probeFirst) probe.output ++ columns else columns ++ probe.output

  /** The same as a join of Spark's, that looks nothing up, with other rows or a plan in the place of
    * the probe.
    */
  def unindexed(left: LogicalPlan): LogicalPlan = {
    val all = scan.unindexed
    val filtered = filter.fold[LogicalPlan](all)(Filter(_, all))
    val named = values.zip(names).collect {
      case (value, name) if !AttributeSet(rows).contains(name) =>
        Alias(value, name.name)(name.exprId, name.qualifier, Some(name.metadata))
    }
    val right = Project(rows ++ named, filtered)
    Project(output, Join(left, right, joinType, Some(condition), JoinHint.NONE))
  }

  override def nodeName: String = IndexLookupJoin.Name
  override def simpleString(maxFields: Int): String = s"${IndexLookupJoin.Name} $label"
  def label: String =
    s"${joinType.sql} ${scan.label} by index ${index.name} (${keys.map(_.sql).mkString(", ")})"

  override protected def withNewChildInternal(newChild: LogicalPlan): IndexLookupJoin =
    copy(probe = newChild)
}

private[slackwater] object IndexLookupJoin {
  val Name = "IndexLookupJoin"
}
