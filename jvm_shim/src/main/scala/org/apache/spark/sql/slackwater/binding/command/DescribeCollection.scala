package org.apache.spark.sql.slackwater.binding.command

import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.DescribeRelation
import org.apache.spark.sql.classic
import org.apache.spark.sql.classic.Dataset
import org.apache.spark.sql.execution.command.LeafRunnableCommand

/** DESCRIBE EXTENDED of a collection, with its kind. */
case class DescribeCollection(describe: DescribeRelation, kind: String)
    extends LeafRunnableCommand {
  override val output: Seq[Attribute] = describe.output

  override def run(session: SparkSession): Seq[Row] =
    Dataset.ofRows(session.asInstanceOf[classic.SparkSession], describe).collect().toSeq.map {
      case Row("Type", Kind.managed, comment) => Row("Type", Kind.of(kind), comment)
      case row                                => row
    }
}
