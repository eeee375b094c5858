package org.apache.spark.sql.slackwater.write

import org.roaringbitmap.longlong.Roaring64Bitmap

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.types.{BooleanType, DataType}

/** Whether a joined row is no match, or the first match of its row of the target in its partition.
  *
  * `matched` says whether it is a match, and `id` tells the rows of the target apart.
  */
private[slackwater] case class FirstMatch(matched: Expression, id: Expression)
    extends BinaryExpression
    with Nondeterministic
    with CodegenFallback {
  @transient private var seen: Roaring64Bitmap = _

  override def left: Expression = matched
  override def right: Expression = id
  override def dataType: DataType = BooleanType
  override def nullable: Boolean = false
  override def stateful: Boolean = true
  override def prettyName: String = "first_match"

  override protected def initializeInternal(partition: Int): Unit = seen = new Roaring64Bitmap
  override protected def evalInternal(row: InternalRow): Any =
    if (matched.eval(row) != true) true
    else {
      val number = id.eval(row).asInstanceOf[Long]
      val first = !seen.contains(number)
      if (first) seen.addLong(number)
      first
    }

  override protected def withNewChildrenInternal(
      newLeft: Expression,
      newRight: Expression
  ): FirstMatch = copy(newLeft, newRight)
}

/** MERGE whose only clause for matches deletes without a condition.
  *
  * Spark lets such a row match repeatedly, and gives it to the writer once for each match. The row
  * is there once, so all matches but the first are left out. As for the matches that Spark counts,
  * the join must not copy rows of the target, so that all matches of one are in one partition.
  */
private[slackwater] object FirstMatch {
  def only(query: LogicalPlan): LogicalPlan = query.transformDown {
    case merge: MergeRows if !merge.checkCardinality && merge.matchedInstructions.nonEmpty =>
      merge.child match {
        case join: Join => merge.copy(child = firsts(merge, join))
        case _          => merge
      }
  }

  private def firsts(merge: MergeRows, join: Join): LogicalPlan = {
    val id = Alias(MonotonicallyIncreasingID(), "id")()
    val target = Project(join.left.output :+ id, join.left)
    val together = HintInfo(strategy = Some(NO_BROADCAST_AND_REPLICATION))
    val numbered = join.copy(left = target, hint = JoinHint(Some(together), None))
    val matched = And(merge.isSourceRowPresent, merge.isTargetRowPresent)
    Filter(FirstMatch(matched, id.toAttribute), numbered)
  }
}
