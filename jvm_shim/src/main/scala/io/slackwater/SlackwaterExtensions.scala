package io.slackwater

import org.apache.spark.sql.{SparkSessionExtensions, SparkSessionExtensionsProvider}
import org.apache.spark.sql.slackwater.DataHooks

/** What Slackwater adds to a Spark session. */
class SlackwaterExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = DataHooks.install(extensions)
}

/** Lets Spark find the extensions without any setting. */
class SlackwaterExtensionsProvider extends SlackwaterExtensions with SparkSessionExtensionsProvider
