package org.apache.spark.sql.slackwater.process

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.classic
import org.apache.spark.sql.execution.command.ViewHelper
import org.apache.spark.sql.internal.SQLConf

/** The settings of a session that can change what a query answers. */
object ResultSettings {

  /** Those that Spark keeps for its own permanent views: all that are set and are not about how a
    * query runs, and always the time zone and the ANSI mode.
    */
  def of(session: SparkSession): Map[String, String] =
    ViewHelper.sqlConfigsToProps(session.asInstanceOf[classic.SparkSession].sessionState.conf, "")

  /** Those of them by which expressions, and rows of collections, may mean something else: without
    * settings that have their defaults, and those that only say how much is done at once.
    *
    * One that is not known to be of that kind may change what a query means.
    */
  def meaning(session: SparkSession): Map[String, String] =
    of(session).filterNot { case (key, value) =>
      tuning.exists(key.startsWith) || defaults.get(key).contains(value)
    }

  private lazy val defaults: Map[String, String] =
    new SQLConf().getAllDefinedConfs.map { case (key, value, _, _) => key -> value }.toMap

  /** What the names of settings begin with. */
  private val tuning = Seq(
    "spark.sql.adaptive.",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.broadcastTimeout",
    "spark.sql.cartesianProductExec.",
    "spark.sql.cbo.",
    "spark.sql.codegen.",
    "spark.sql.exchange.reuse",
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.maxPartitionNum",
    "spark.sql.files.maxRecordsPerFile",
    "spark.sql.files.minPartitionNum",
    "spark.sql.files.openCostInBytes",
    "spark.sql.inMemoryColumnarStorage.",
    "spark.sql.join.preferSortMergeJoin",
    "spark.sql.leafNodeDefaultParallelism",
    "spark.sql.objectHashAggregate.",
    "spark.sql.parquet.columnarReaderBatchSize",
    "spark.sql.repl.",
    "spark.sql.shuffle.",
    "spark.sql.sortMergeJoinExec.",
    "spark.sql.statistics.",
    "spark.sql.thriftServer.",
    "spark.sql.ui.",
    "spark.sql.windowExec."
  )
}
