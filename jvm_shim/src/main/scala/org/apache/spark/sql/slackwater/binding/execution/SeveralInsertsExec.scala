package org.apache.spark.sql.slackwater.binding.execution

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.datasources.v2.LeafV2CommandExec
import org.apache.spark.sql.slackwater.binding.normalization.Binding
import org.apache.spark.sql.slackwater.write.{Insert, Target}

private[slackwater] final case class SeveralInsertsExec(
    targets: Seq[Target],
    queries: Seq[LogicalPlan]
) extends LeafV2CommandExec {
  override def output: Seq[Attribute] = Nil
  override def nodeName: String = "SlackwaterInserts"
  override protected def stringArgs: Iterator[Any] = Iterator(targets.map(_.toString))
  override protected def run(): Seq[InternalRow] = {
    val classic = session.asInstanceOf[SparkSession]
    Insert.together(targets, classic)(Binding(classic).together(queries, _))
    Nil
  }
}
