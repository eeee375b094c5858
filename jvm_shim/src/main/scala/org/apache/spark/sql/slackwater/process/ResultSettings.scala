package org.apache.spark.sql.slackwater.process

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.classic
import org.apache.spark.sql.execution.command.ViewHelper

/** The settings of a session that can change what a query answers. */
object ResultSettings {

  /** Those that Spark keeps for its own permanent views: all that are set and are not about how a
    * query runs, and always the time zone and the ANSI mode.
    */
  def of(session: SparkSession): Map[String, String] =
    ViewHelper.sqlConfigsToProps(session.asInstanceOf[classic.SparkSession].sessionState.conf, "")
}
