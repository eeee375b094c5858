package org.apache.spark.sql.slackwater

import java.util.{Collections, WeakHashMap}
import java.util.concurrent.atomic.AtomicInteger

import org.apache.spark.SparkContext
import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.slackwater.parser.SlackwaterParser
import org.apache.spark.sql.slackwater.process.SparkSessions
import org.apache.spark.sql.slackwater.thrift.ThriftServer

/** What Slackwater puts into a session, once for each, however often it is asked for. */
object Activation {

  private val catalogKey = "spark.sql.catalog.slackwater"
  private val catalogClass = "io.slackwater.SlackwaterCatalog"

  private val installed =
    Collections.synchronizedMap(new WeakHashMap[SparkSessionExtensions, AtomicInteger]())

  def install(extensions: SparkSessionExtensions): Unit = {
    val count = installed.computeIfAbsent(extensions, _ => new AtomicInteger)
    val turn = count.incrementAndGet()
    if (isEnabled) {
      if (turn == 1) {
        DataHooks.install(extensions)
        registerCatalog()
      }
      // The last one is the outermost, also around parsers that were added in between.
      extensions.injectParser { (session, delegate) =>
        if (turn == count.get) {
          ThriftServer.look()
          new SlackwaterParser(session, delegate)
        } else delegate
      }
    }
  }

  /** Spark applies extensions before it copies the context's settings into the session's. */
  private def registerCatalog(): Unit =
    SparkContext.getActive.map(_.conf).filterNot(_.contains(catalogKey)).foreach { conf =>
      conf.set(catalogKey, catalogClass).set(SparkSessions.impliedKey, "true")
    }

  private def isEnabled: Boolean =
    SparkContext.getActive.forall(
      _.conf.getBoolean("spark.slackwater.enabled", defaultValue = true)
    )
}
