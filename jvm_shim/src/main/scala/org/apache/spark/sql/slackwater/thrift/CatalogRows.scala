package org.apache.spark.sql.slackwater.thrift

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Try

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.util.CharVarcharUtils
import org.apache.spark.sql.slackwater.process.SparkSessions
import org.apache.spark.sql.slackwater.protocol.Json
import org.apache.spark.sql.types.{DataType, StructType}

/** The rows of our catalog in the results of JDBC's metadata calls, with their columns.
  *
  * The coordinator decides what is found: each method is one call of it, however much there is. Raises
  * the coordinator's errors.
  */
final class CatalogRows(session: SparkSession) {
  import CatalogRows._

  def schemas(pattern: String): Seq[Array[AnyRef]] = {
    val body = request("schemas" -> anySchema(pattern))
    found("find_schemas", body, "schemas").map { schema =>
      Array[AnyRef](schema.get("name").asText, SparkSessions.catalogName)
    }
  }

  def tables(schemas: String, names: String, types: Seq[String]): Seq[Array[AnyRef]] = {
    val body = request("schemas" -> anySchema(schemas), "names" -> names)
    body.set[ObjectNode]("types", Json.texts(types))
    found("find_relations", body, "relations").map { table =>
      val known = Seq(
        SparkSessions.catalogName,
        table.get("schema").asText,
        table.get("name").asText,
        table.get("type").asText,
        table.path("comment").asText("")
      )
      known.toArray[AnyRef] ++ Array.fill[AnyRef](referring)(null)
    }
  }

  def columns(schemas: String, names: String, columns: String): Seq[Array[AnyRef]] = {
    val types = new ColumnTypes
    val body =
      request("schemas" -> anySchema(schemas), "names" -> names, "columns" -> columns)
    for {
      table <- found("find_columns", body, "relations")
      column <- elements(table.get("columns"))
    } yield row(table, column, types.of(column))
  }

  private def request(patterns: (String, String)*): ObjectNode = {
    val body = SparkSessions.request(session)
    patterns.foreach { case (name, pattern) => body.put(name, pattern) }
    body
  }

  private def found(call: String, body: ObjectNode, field: String): Seq[JsonNode] =
    elements(SparkSessions.coordinator(session).call(s"/v1/catalog/$call", body).get(field))
}

object CatalogRows {

  /** Types of tables that our catalog has and Spark's has not. */
  val tableTypes: Seq[String] = Seq("MATERIALIZED VIEW", "SOURCE", "SYSTEM TABLE")

  /** The columns of getTables after REMARKS, about types that refer to others. */
  private val referring = 5

  /** Spark finds all schemas for an empty pattern as well. */
  private def anySchema(pattern: String): String =
    if (pattern == null || pattern.isEmpty) null else pattern

  private def elements(node: JsonNode): Seq[JsonNode] = node.elements.asScala.toSeq

  private def row(table: JsonNode, column: JsonNode, kind: ColumnType): Array[AnyRef] = {
    val nullable = column.get("nullable").asBoolean
    Array[AnyRef](
      SparkSessions.catalogName,
      table.get("schema").asText,
      table.get("name").asText,
      column.get("name").asText,
      Int.box(kind.code),
      kind.name,
      orNull(kind.size),
      null, // BUFFER_LENGTH
      orNull(kind.digits),
      orNull(kind.radix),
      Int.box(if (nullable) 1 else 0),
      column.path("comment").asText(""),
      null, // COLUMN_DEF
      null, // SQL_DATA_TYPE
      null, // SQL_DATETIME_SUB
      null, // CHAR_OCTET_LENGTH
      Int.box(column.get("position").asInt),
      if (nullable) "YES" else "NO",
      null, // SCOPE_CATALOG
      null, // SCOPE_SCHEMA
      null, // SCOPE_TABLE
      null, // SOURCE_DATA_TYPE
      "NO" // IS_AUTO_INCREMENT
    )
  }

  private def orNull(number: Option[Int]): AnyRef = number.map(Int.box).orNull

  /** The types of the columns of one answer: many columns have one of few types. */
  private final class ColumnTypes {
    private val known = mutable.HashMap.empty[(JsonNode, JsonNode), ColumnType]

    def of(column: JsonNode): ColumnType =
      known.getOrElseUpdate((column.get("type"), column.get("metadata")), read(column))

    private def read(column: JsonNode): ColumnType =
      Try(ColumnType.of(dataType(column))).getOrElse(ColumnType.unknown(column.get("type")))

    private def dataType(column: JsonNode): DataType = {
      val field = Json.obj()
      Seq("name", "type", "nullable", "metadata").foreach { name =>
        field.set[ObjectNode](name, column.get(name))
      }
      val struct = Json.obj().put("type", "struct")
      struct.putArray("fields").add(field)
      val read: StructType = Json.schema(struct)
      // CHAR and VARCHAR are texts to Spark, with what they were declared as beside them.
      CharVarcharUtils.getRawType(read.head.metadata).getOrElse(read.head.dataType)
    }
  }
}
