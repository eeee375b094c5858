package org.apache.spark.sql.hive.thriftserver.slackwater

import java.lang.reflect.Field
import java.util.{List => JList, Map => JMap}
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.hive.service.cli.{CLIService, OperationHandle, SessionHandle}
import org.apache.hive.service.cli.operation._
import org.apache.hive.service.cli.session.{HiveSession, SessionManager}
import org.apache.hive.service.server.HiveServer2

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
import org.apache.spark.sql.hive.thriftserver.server.SparkSQLOperationManager
import org.apache.spark.sql.hive.thriftserver.ui.HiveThriftServer2Listener

/** Puts operations that show our catalog too into the Thrift server of this driver. */
object OperationManagers {

  /** For all connections that there are, and those to come. Does nothing where it was done, and where no
    * server has started.
    */
  def install(): Unit = synchronized {
    sessions.foreach { sessions =>
      val manager = sessions.getOperationManager match {
        case below: SparkSQLOperationManager if !below.isInstanceOf[BothCatalogs] =>
          val both = new BothCatalogs(below)
          field[SessionManager]("operationManager").set(sessions, both)
          both
        case there => there
      }
      // One that was just being opened has the manager that was there before.
      read[SessionManager, JMap[SessionHandle, HiveSession]](
        "handleToSession",
        sessions
      ).values.asScala
        .foreach(_.setOperationManager(manager))
    }
  }

  private def sessions: Option[SessionManager] =
    for {
      listener <- Option(HiveThriftServer2.listener)
      server <- read[HiveThriftServer2Listener, Option[HiveServer2]]("server", listener)
      service <- Option(read[HiveServer2, CLIService]("cliService", server))
      sessions <- Option(service.getSessionManager)
    } yield sessions

  private[slackwater] def field[T: reflect.ClassTag](name: String): Field = {
    val found = reflect.classTag[T].runtimeClass.getDeclaredField(name)
    found.setAccessible(true)
    found
  }

  private[slackwater] def read[T: reflect.ClassTag, V](name: String, of: T): V =
    field[T](name).get(of).asInstanceOf[V]
}

/** Makes Spark's operations, and for metadata ours. It shares what it knows with the one that was there
  * before, which Spark goes on to tell of new sessions.
  */
private final class BothCatalogs(below: SparkSQLOperationManager) extends SparkSQLOperationManager {

  override val handleToOperation: JMap[OperationHandle, Operation] = {
    val name = "handleToOperation"
    val shared = OperationManagers
      .read[OperationManager, JMap[OperationHandle, Operation]](name, below)
    OperationManagers.field[OperationManager](name).set(this, shared)
    shared
  }

  override val sessionToContexts: ConcurrentHashMap[SessionHandle, SparkSession] =
    below.sessionToContexts

  override def newGetCatalogsOperation(parent: HiveSession): GetCatalogsOperation =
    noted(new Catalogs(sessionOf(parent), parent))

  override def newGetSchemasOperation(
      parent: HiveSession,
      catalog: String,
      schemas: String
  ): GetSchemasOperation = noted(new Schemas(sessionOf(parent), parent, catalog, schemas))

  override def newGetTablesOperation(
      parent: HiveSession,
      catalog: String,
      schemas: String,
      tables: String,
      types: JList[String]
  ): MetadataOperation =
    noted(new Tables(sessionOf(parent), parent, catalog, schemas, tables, types))

  override def newGetColumnsOperation(
      parent: HiveSession,
      catalog: String,
      schemas: String,
      tables: String,
      columns: String
  ): GetColumnsOperation =
    noted(new Columns(sessionOf(parent), parent, catalog, schemas, tables, columns))

  override def newGetTableTypesOperation(parent: HiveSession): GetTableTypesOperation =
    noted(new TableTypes(sessionOf(parent), parent))

  private def sessionOf(parent: HiveSession): SparkSession =
    sessionToContexts.get(parent.getSessionHandle)

  private def noted[T <: Operation](operation: T): T = synchronized {
    handleToOperation.put(operation.getHandle, operation)
    operation
  }
}
