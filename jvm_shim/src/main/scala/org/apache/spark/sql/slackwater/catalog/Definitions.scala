package org.apache.spark.sql.slackwater.catalog

import java.util.Locale

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.catalyst.util.CharVarcharUtils
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.slackwater.protocol.{
  DataErrors,
  Json,
  ObjectDescription,
  ViewDescription
}
import org.apache.spark.sql.types.StructType

/** What a statement of Spark's defines, as the protocol carries it, and back. */
object Definitions {

  // Spark needs these to expand a view again; they are not the user's properties.
  private val schemaModeKey = "slackwater.view.schema-mode"
  private val columnNamesKey = "slackwater.view.query-columns"
  private val configPrefix = "slackwater.view.config."

  /** Among the settings under which Spark expands a view: the id by which the coordinator knows it. */
  val viewId = "slackwater.view.id"

  /** Properties that Spark sets, and that mean nothing for a collection. */
  private val ofSpark = Set(
    TableCatalog.PROP_PROVIDER,
    TableCatalog.PROP_OWNER,
    TableCatalog.PROP_COMMENT,
    TableCatalog.PROP_TABLE_TYPE
  )

  /** What STORED AS and ROW FORMAT become. */
  private val ofHive = "hive."

  def schema(columns: Array[Column]): StructType = CatalogV2Util.v2ColumnsToStructType(columns)

  /** A relation's columns; those of Spark's own with CHAR and VARCHAR as they were declared. */
  def columns(relation: Table): Array[Column] = relation match {
    case own: V1Table =>
      CatalogV2Util.structTypeToV2Columns(CharVarcharUtils.getRawSchema(own.catalogTable.schema))
    case other => other.columns
  }

  /** A new table's fields in a request. Refuses what a collection cannot have. */
  def putTable(body: ObjectNode, name: String, info: TableInfo): Unit = {
    val properties = info.properties.asScala.toMap
    if (info.partitions.nonEmpty) {
      throw DataErrors.unsupported(s"PARTITIONED BY and CLUSTERED BY for $name", "Leave it out.")
    }
    if (properties.contains(TableCatalog.PROP_LOCATION)) {
      throw DataErrors.unsupported(
        s"LOCATION for $name",
        "Slackwater keeps a table's files in the environment."
      )
    }
    if (info.columns.isEmpty) {
      throw DataErrors.unsupported(s"The table $name without columns", "Name at least one.")
    }
    refuseFormat(name, properties)
    body.set[ObjectNode]("schema", Json.ofSchema(schema(info.columns)))
    body.set[ObjectNode]("properties", Json.textMap(ofUser(properties)))
    body.put("comment", properties.get(TableCatalog.PROP_COMMENT).orNull)
  }

  /** Only saying nothing, or that files are Parquet, is true; DataFrames always say the default. */
  private def refuseFormat(name: String, properties: Map[String, String]): Unit = {
    val usual = Set("slackwater", "parquet", SQLConf.get.defaultDataSourceName)
    properties
      .get(TableCatalog.PROP_PROVIDER)
      .filterNot(p => usual.exists(_.equalsIgnoreCase(p))) match {
      case Some(other) =>
        throw DataErrors.unsupported(
          s"USING $other for $name",
          "Leave it out: tables are kept as Parquet."
        )
      case None =>
    }
    if (properties.keys.exists(_.startsWith(ofHive))) {
      throw DataErrors.unsupported(s"STORED AS and ROW FORMAT for $name", "Leave it out.")
    }
    if (properties.keys.exists(_.startsWith(TableCatalog.OPTION_PREFIX))) {
      throw DataErrors.unsupported(
        s"OPTIONS and ROW FORMAT for $name",
        "Leave it out; TBLPROPERTIES are kept."
      )
    }
  }

  def putView(body: ObjectNode, name: String, view: View, replace: Boolean): Unit = {
    val properties = view.properties.asScala.toMap
    if (Option(view.schemaMode).exists(_.toUpperCase(Locale.ROOT).endsWith("EVOLUTION"))) {
      throw DataErrors.unsupported(
        s"WITH SCHEMA ${view.schemaMode} for the view $name",
        "Its columns are those that it is created with: leave it out, or replace the view."
      )
    }
    val configs = view.sqlConfigs.asScala.filter { case (key, _) => key != viewId }
    val ofView = Map(
      schemaModeKey -> Option(view.schemaMode).getOrElse(""),
      columnNamesKey -> Json.texts(view.queryColumnNames).toString
    ) ++ configs.map { case (key, value) => (configPrefix + key) -> value }
    val context = Json.obj()
    context.put("catalog", view.currentCatalog)
    context.set[ObjectNode]("namespace", Json.texts(view.currentNamespace))
    context.set[ObjectNode]("user", body.path("context").path("user"))
    context.set[ObjectNode]("settings", Json.textMap(configs))
    body.set[ObjectNode]("context", context)
    body.set[ObjectNode]("schema", Json.ofSchema(schema(view.columns)))
    body.put("query", view.queryText)
    body.set[ObjectNode]("properties", Json.textMap(ofUser(properties) ++ ofView))
    body.put("replace", replace)
    body.put("comment", properties.get(TableCatalog.PROP_COMMENT).orNull)
  }

  /** The view as Spark expands it: in the catalog and namespace in which it was created. */
  def view(description: ObjectDescription, definition: ViewDescription): View = {
    val stored = description.properties
    val names = stored
      .get(columnNamesKey)
      .map(Json.mapper.readTree(_).elements.asScala.map(_.asText).toArray)
      .getOrElse(description.schema.fieldNames)
    val configs = stored.collect {
      case (key, value) if key.startsWith(configPrefix) => key.stripPrefix(configPrefix) -> value
    }
    val builder = new View.Builder()
      .withSchema(description.schema)
      .withProperties(shown(stored).asJava)
      .withQueryText(definition.query)
      .withCurrentCatalog(definition.catalog)
      .withCurrentNamespace(definition.namespace.toArray)
      .withSqlConfigs((configs + (viewId -> description.id)).asJava)
      .withSchemaMode(stored.get(schemaModeKey).filter(_.nonEmpty).getOrElse("COMPENSATION"))
      .withQueryColumnNames(names)
    description.comment.foreach(builder.withComment)
    builder.build()
  }

  def change(change: TableChange): ObjectNode = {
    val node = Json.obj()
    change match {
      case add: TableChange.AddColumn if add.position == null =>
        val column = node.putObject("add_column")
        column.set[ObjectNode]("name", Json.texts(add.fieldNames))
        column.set[ObjectNode]("type", Json.mapper.readTree(add.dataType.json))
        column.put("nullable", add.isNullable)
        column.put("comment", add.comment)
        column.put("default", Option(add.defaultValue).map(_.getSql).orNull)
      case set: TableChange.SetProperty if set.property == TableCatalog.PROP_COMMENT =>
        node.put("set_comment", set.value)
      case set: TableChange.SetProperty if set.property == TableCatalog.PROP_LOCATION =>
        node.put("set_location", set.value)
      case set: TableChange.SetProperty =>
        node.putObject("set_property").put("name", set.property).put("value", set.value)
      case remove: TableChange.RemoveProperty => node.put("remove_property", remove.property)
      case rename: TableChange.RenameColumn   =>
        val names = node.putObject("rename_column")
        names.set[ObjectNode]("from", Json.texts(rename.fieldNames))
        names.put("to", rename.newName)
      case drop: TableChange.DeleteColumn =>
        node.set[ObjectNode]("drop_column", Json.texts(drop.fieldNames))
      case update: TableChange.UpdateColumnNullability =>
        val column = node.putObject("set_nullability")
        column.set[ObjectNode]("name", Json.texts(update.fieldNames))
        column.put("nullable", update.nullable)
      case update: TableChange.UpdateColumnComment =>
        val column = node.putObject("set_column_comment")
        column.set[ObjectNode]("name", Json.texts(update.fieldNames))
        column.put("comment", update.newComment)
      case other => node.put("other", other.getClass.getSimpleName)
    }
    node
  }

  private def ofUser(properties: Map[String, String]): Map[String, String] =
    properties.filterNot { case (key, _) =>
      ofSpark(key) || key.startsWith(TableCatalog.OPTION_PREFIX)
    }

  /** The properties that users see. */
  def shown(properties: Map[String, String]): Map[String, String] =
    properties.filterNot { case (key, _) => key.startsWith("slackwater.view.") }
}
