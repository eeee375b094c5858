package org.apache.spark.sql.hive.thriftserver.slackwater

import java.util.{List => JList}

import scala.jdk.CollectionConverters._

import org.apache.hive.service.cli._
import org.apache.hive.service.cli.operation.Operation
import org.apache.hive.service.cli.session.HiveSession
import org.apache.hive.service.rpc.thrift.{TProtocolVersion, TRowSet}

import org.apache.spark.sql.{AnalysisException, SparkSession}
import org.apache.spark.sql.connector.catalog.CatalogManager
import org.apache.spark.sql.hive.thriftserver._
import org.apache.spark.sql.hive.thriftserver.ui.HiveThriftServer2EventManager
import org.apache.spark.sql.slackwater.process.SparkSessions
import org.apache.spark.sql.slackwater.thrift.{CatalogRows, ShownCatalogs}

// An operation asks the coordinator first. What it fails with fails the operation: a listing that lacks
// what the user has asked for, without a word, would be worse. Calls for Spark's catalog alone, for
// catalogs and for types of tables never ask it.

private final class Catalogs(spark: SparkSession, parent: HiveSession)
    extends SparkGetCatalogsOperation(spark, parent) {
  private val rows = new ShownRows(spark, parent, null)

  override def runInternal(): Unit = {
    super.runInternal()
    val names = if (rows.shown.ours) SparkSessions.catalogs(spark) else Nil
    rows.show(this, names.map(Array[AnyRef](_)))
  }

  override def getNextRowSet(orientation: FetchOrientation, most: Long): TRowSet = {
    validateDefaultFetchOrientation(orientation)
    rows.next(orientation, most)
  }
}

private final class TableTypes(spark: SparkSession, parent: HiveSession)
    extends SparkGetTableTypesOperation(spark, parent) {
  private val rows = new ShownRows(spark, parent, null)

  override def runInternal(): Unit = {
    super.runInternal()
    val sparks = rowSet.asScala.map(_.head.toString).toSeq
    val types = if (rows.shown.ours) (sparks ++ CatalogRows.tableTypes).distinct.sorted else sparks
    rows.show(this, types.map(Array[AnyRef](_)))
  }

  override def getNextRowSet(orientation: FetchOrientation, most: Long): TRowSet = {
    validateDefaultFetchOrientation(orientation)
    rows.next(orientation, most)
  }
}

private final class Schemas(
    spark: SparkSession,
    parent: HiveSession,
    catalog: String,
    schemas: String
) extends SparkGetSchemasOperation(spark, parent, catalog, schemas) {
  private val rows = new ShownRows(spark, parent, catalog)

  override def runInternal(): Unit = {
    val ours = rows.ask(statementId)(_.schemas(schemas))
    if (rows.shown.sparks) super.runInternal() else pass()
    rows.show(this, ours ++ rows.named(rowSet, schema = 0, catalog = 1))
  }

  private def pass(): Unit = {
    setState(OperationState.RUNNING)
    rows.finish(statementId)
    setState(OperationState.FINISHED)
  }

  override def getNextRowSet(orientation: FetchOrientation, most: Long): TRowSet = {
    validateDefaultFetchOrientation(orientation)
    rows.next(orientation, most)
  }
}

private final class Tables(
    spark: SparkSession,
    parent: HiveSession,
    catalog: String,
    schemas: String,
    tables: String,
    types: JList[String]
) extends SparkGetTablesOperation(spark, parent, catalog, schemas, tables, types) {
  private val rows = new ShownRows(spark, parent, catalog)

  override def runInternal(): Unit = {
    val wanted = Option(types).fold(Seq.empty[String])(_.asScala.toSeq)
    val ours = rows.ask(statementId)(_.tables(schemas, tables, wanted))
    if (rows.shown.sparks) super.runInternal() else pass()
    val found = ours ++ rows.named(rowSet, schema = 1, catalog = 0)
    rows.show(this, if (rows.shown.ours) found.sortBy(inOrder) else found)
  }

  /** By type, catalog, schema and name, as JDBC has it. */
  private def inOrder(row: Array[AnyRef]): (String, String, String, String) = {
    val texts = Seq(3, 0, 1, 2).map(at => String.valueOf(row(at)))
    (texts(0), texts(1), texts(2), texts(3))
  }

  private def pass(): Unit = {
    setState(OperationState.RUNNING)
    rows.finish(statementId)
    setState(OperationState.FINISHED)
  }

  override def getNextRowSet(orientation: FetchOrientation, most: Long): TRowSet = {
    validateDefaultFetchOrientation(orientation)
    rows.next(orientation, most)
  }
}

private final class Columns(
    spark: SparkSession,
    parent: HiveSession,
    catalog: String,
    schemas: String,
    tables: String,
    columns: String
) extends SparkGetColumnsOperation(spark, parent, catalog, schemas, tables, columns) {
  private val rows = new ShownRows(spark, parent, catalog)

  override def runInternal(): Unit = {
    val ours = rows.ask(statementId)(_.columns(schemas, tables, columns))
    if (rows.shown.sparks) super.runInternal() else pass()
    rows.show(this, ours ++ rows.named(rowSet, schema = 1, catalog = 0))
  }

  private def pass(): Unit = {
    setState(OperationState.RUNNING)
    rows.finish(statementId)
    setState(OperationState.FINISHED)
  }

  override def getNextRowSet(orientation: FetchOrientation, most: Long): TRowSet = {
    validateDefaultFetchOrientation(orientation)
    rows.next(orientation, most)
  }
}

/** The rows of one metadata operation: those of our catalog, and Spark's. */
private final class ShownRows(session: SparkSession, parent: HiveSession, catalog: String) {

  lazy val shown: ShownCatalogs = ShownCatalogs.of(session, catalog)

  private var columns: TableSchema = _
  private var version: TProtocolVersion = _
  private var rows = IndexedSeq.empty[Array[AnyRef]]
  private var sent = 0

  /** Ours. Raises the coordinator's error as one that a client of JDBC understands. */
  def ask(statementId: String)(
      question: CatalogRows => Seq[Array[AnyRef]]
  ): Seq[Array[AnyRef]] =
    if (!shown.ours) Nil
    else
      try question(new CatalogRows(session))
      catch {
        case error: AnalysisException =>
          begin(statementId)
          events.onStatementError(statementId, error.getMessage, "")
          throw new HiveSQLException(error.getMessage, error.getSqlState)
      }

  /** Tells the server's page of an operation that Spark's own has not told of. */
  def finish(statementId: String): Unit = {
    begin(statementId)
    events.onStatementFinish(statementId)
  }

  private def begin(statementId: String): Unit = events.onStatementStart(
    statementId,
    parent.getSessionHandle.getSessionId.toString,
    s"Listing objects of ${SparkSessions.catalogName}",
    statementId,
    parent.getUsername
  )

  private def events: HiveThriftServer2EventManager = HiveThriftServer2.eventManager

  /** Spark's rows, with the name of their catalog where they have a schema: a temporary view has none.
    */
  def named(sparks: RowSet, schema: Int, catalog: Int): Seq[Array[AnyRef]] =
    // The set fills one array again and again.
    sparks.asScala.map(_.clone).toSeq.map { row =>
      if (!shown.named || row(schema) == null) row
      else row.updated(catalog, CatalogManager.SESSION_CATALOG_NAME)
    }

  def show(operation: Operation, found: Seq[Array[AnyRef]]): Unit = {
    columns = new TableSchema(operation.getResultSetSchema)
    version = operation.getProtocolVersion
    rows = found.toIndexedSeq
  }

  /** The next rows of them. Spark cuts its sets with each piece, all that is left too. */
  def next(orientation: FetchOrientation, most: Long): TRowSet = {
    if (orientation == FetchOrientation.FETCH_FIRST) sent = 0
    val piece = RowSetFactory.create(columns, version, false)
    piece.setStartOffset(sent)
    val end = math.min(rows.size.toLong, sent + most).toInt
    while (sent < end) {
      piece.addRow(rows(sent))
      sent += 1
    }
    piece.toTRowSet
  }
}
