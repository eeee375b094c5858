package org.apache.spark.sql.slackwater.thrift

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.hive.thriftserver.slackwater.OperationManagers

/** Spark's Thrift server, where one runs in this driver: its metadata operations show our objects.
  *
  * Nothing tells an extension that a server has started. But each of its connections begins a session
  * of Spark, or parses the USE that names its schema, in the thread that opens it. Before that nobody
  * can have asked for metadata. Where no server runs, its classes are neither needed nor loaded.
  */
object ThriftServer extends Logging {

  private val opening = "org.apache.spark.sql.hive.thriftserver.SparkSQLSessionManager"

  /** Called where a session is made, and where a USE is parsed. */
  def look(): Unit =
    if (opensConnection) {
      try OperationManagers.install()
      catch {
        case error @ (NonFatal(_) | _: LinkageError) =>
          logWarning("Metadata operations of the Thrift server show Spark's catalog alone.", error)
      }
    }

  private def opensConnection: Boolean =
    StackWalker
      .getInstance()
      .walk[Boolean](_.anyMatch { frame =>
        frame.getClassName == opening && frame.getMethodName == "openSession"
      })
}
