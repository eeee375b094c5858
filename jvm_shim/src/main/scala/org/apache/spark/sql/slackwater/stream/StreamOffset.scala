package org.apache.spark.sql.slackwater.stream

import org.apache.spark.sql.connector.read.streaming.{Offset => SparkOffset}
import org.apache.spark.sql.execution.streaming.Offset
import org.apache.spark.sql.slackwater.protocol.Json

/** Up to where a stream has read a collection: all changes at and before `timestamp`, in ms.
  *
  * The id tells a collection from a later one of its name.
  */
private[stream] final case class StreamOffset(collection: String, timestamp: Long) extends Offset {
  override val json: String =
    Json.obj().put("collection", collection).put("timestamp", timestamp).toString
}

private[stream] object StreamOffset {

  /** What a checkpoint has of an offset. */
  def of(offset: SparkOffset): StreamOffset = offset match {
    case ours: StreamOffset => ours
    case kept               =>
      val node = Json.mapper.readTree(kept.json)
      StreamOffset(node.get("collection").asText, node.get("timestamp").asLong)
  }
}
