package org.apache.spark.sql.slackwater.binding.logical

import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.expressions.Literal.TrueLiteral
import org.apache.spark.sql.catalyst.plans.QueryPlan
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.slackwater.binding.Ours
import org.apache.spark.sql.slackwater.protocol.DataErrors
import org.apache.spark.sql.slackwater.shims.V2Relation
import org.apache.spark.sql.slackwater.write.{Target, WriteMode}

/** `FROM .. INSERT INTO a .. INSERT INTO b ..`: all of it reads at one time and is one commit.
  *
  * Spark has a command for each INSERT, and runs one after the other.
  */
private[slackwater] final case class SeveralInserts(
    targets: Seq[Target],
    queries: Seq[LogicalPlan]
) extends LeafCommand {
  override def output: Seq[Attribute] = Nil
  override def innerChildren: Seq[QueryPlan[_]] = queries
  override def nodeName: String = "SlackwaterInserts"
  override protected def stringArgs: Iterator[Any] = Iterator(targets.map(_.toString))
}

private[slackwater] object SeveralInserts {

  /** The statement that Spark's commands are, if one of them writes a table of ours.
    *
    * Raises SLACKWATER_UNSUPPORTED when another one writes anything else.
    */
  def of(plan: LogicalPlan): Option[SeveralInserts] = plan match {
    case union: Union if union.children.exists(isOurs) =>
      val (targets, queries) = union.children.map(insert).unzip
      Some(SeveralInserts(targets, queries))
    case _ => None
  }

  private def isOurs(plan: LogicalPlan): Boolean = plan match {
    case write: V2WriteCommand => Ours.is(write.table)
    case _                     => false
  }

  private def insert(command: LogicalPlan): (Target, LogicalPlan) = command match {
    case write: AppendData => (target(write, WriteMode.Append), write.query)
    case write: OverwriteByExpression if write.deleteExpr == TrueLiteral =>
      (target(write, WriteMode.Overwrite), write.query)
    case _ => throw DataErrors.severalInserts()
  }

  private def target(write: V2WriteCommand, mode: WriteMode): Target =
    EliminateSubqueryAliases(write.table) match {
      case V2Relation(Ours(table)) =>
        table.requireWritable()
        Target(table, mode)
      case _ => throw DataErrors.severalInserts()
    }
}
