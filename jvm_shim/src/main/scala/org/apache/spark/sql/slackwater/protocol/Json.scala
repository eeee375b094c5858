package org.apache.spark.sql.slackwater.protocol

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.core.{JsonFactoryBuilder, StreamReadConstraints}
import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.{ArrayNode, ObjectNode}

import org.apache.spark.sql.types.{DataType, StructType}

/** The protocol's values as JSON. */
object Json {

  /** Texts may be as long as memory allows: the small parts of a collection are one text, and what
    * is read here comes from the coordinator, which bounds it.
    */
  val mapper: ObjectMapper = {
    val constraints = StreamReadConstraints.builder.maxStringLength(Int.MaxValue).build
    val factory = new JsonFactoryBuilder()
    factory.streamReadConstraints(constraints)
    new ObjectMapper(factory.build())
  }

  def obj(): ObjectNode = mapper.createObjectNode()

  def texts(values: Iterable[String]): ArrayNode = {
    val array = mapper.createArrayNode()
    values.foreach(value => array.add(value))
    array
  }

  def textMap(values: Iterable[(String, String)]): ObjectNode = {
    val node = obj()
    values.foreach { case (key, value) => node.put(key, value) }
    node
  }

  def schema(node: JsonNode): StructType = {
    val text = if (node.isTextual) node.asText else node.toString
    DataType.fromJson(text).asInstanceOf[StructType]
  }

  def ofSchema(schema: StructType): JsonNode = mapper.readTree(schema.json)

  def objectDescription(node: JsonNode): ObjectDescription = ObjectDescription(
    id = node.get("id").asText,
    kind = node.get("kind").asText,
    schemaName = node.get("schema_name").asText,
    name = node.get("name").asText,
    columns = optional(node.path("schema")),
    writable = node.path("writable").asBoolean(false),
    properties = entries(node.path("properties")),
    comment = optional(node.path("comment")).map(_.asText),
    view = optional(node.path("view")).map { view =>
      ViewDescription(
        view.get("query").asText,
        view.get("catalog").asText,
        view.get("namespace").elements.asScala.map(_.asText).toSeq
      )
    }
  )

  def entries(node: JsonNode): Map[String, String] =
    node.properties.asScala.map(entry => entry.getKey -> entry.getValue.asText).toMap

  def optional(node: JsonNode): Option[JsonNode] =
    Option(node).filterNot(found => found.isMissingNode || found.isNull)
}
