package io.slackwater

import org.apache.spark.sql.{SparkSessionExtensions, SparkSessionExtensionsProvider}
import org.apache.spark.sql.slackwater.Activation

/** Adds Slackwater to a Spark session: `spark.sql.extensions=io.slackwater.SlackwaterExtensions`.
  *
  * The setting is not needed where the jar is on Spark's class path, and does no harm there.
  */
class SlackwaterExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = Activation.install(extensions)
}

/** Lets Spark find the extensions without any setting. */
class SlackwaterExtensionsProvider extends SlackwaterExtensions with SparkSessionExtensionsProvider
