package org.apache.spark.sql.slackwater

import org.apache.spark.sql.SparkSessionExtensions

/** The rules that read and write collections. */
object DataHooks {
  def install(extensions: SparkSessionExtensions): Unit = ()
}
