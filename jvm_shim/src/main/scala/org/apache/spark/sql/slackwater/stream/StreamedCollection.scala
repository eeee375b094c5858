package org.apache.spark.sql.slackwater.stream

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.slackwater.protocol.Json
import org.apache.spark.sql.types.{LongType, StructType}

/** A collection that is streamed.
  *
  * @param id
  *   by which the coordinator knows it
  * @param columns
  *   the types that Spark computes with
  */
private[stream] final case class StreamedCollection(
    identifier: Seq[String],
    id: String,
    columns: StructType,
    options: StreamOptions
) {
  def name: String = identifier.mkString(".")

  /** The columns of the stream: those of SUBSCRIBE, or of the collection. */
  def schema: StructType =
    if (options.changes) StructType(StreamedCollection.ofChanges ++ columns) else columns

  /** As options of Spark's, which are texts. */
  def described: Map[String, String] = {
    val text = Json.obj()
    text.set[ObjectNode]("identifier", Json.texts(identifier))
    text.put("id", id)
    text.set[ObjectNode]("columns", Json.ofSchema(columns))
    text.put("changes", options.changes)
    text.put("snapshot", options.snapshot)
    options.asOf.foreach(text.put("as_of", _))
    Map(StreamedCollection.Key -> text.toString)
  }
}

private[stream] object StreamedCollection {
  private val Key = "collection"

  val ofChanges: StructType = new StructType()
    .add("mz_timestamp", LongType, nullable = false)
    .add("mz_diff", LongType, nullable = false)

  def of(described: Map[String, String]): StreamedCollection = {
    val text = Json.mapper.readTree(described(Key))
    StreamedCollection(
      text.get("identifier").elements.asScala.map(_.asText).toSeq,
      text.get("id").asText,
      Json.schema(text.get("columns")),
      StreamOptions(
        text.get("changes").asBoolean,
        text.get("snapshot").asBoolean,
        Option(text.get("as_of")).map(_.asLong)
      )
    )
  }
}
