package org.apache.spark.sql.slackwater.stream

import org.apache.spark.sql.{classic, SQLContext}
import org.apache.spark.sql.execution.streaming.Source
import org.apache.spark.sql.sources.StreamSourceProvider
import org.apache.spark.sql.types.StructType

/** Makes the source when a stream starts. Spark finds it by the name of its class. */
private[stream] final class CollectionStreamProvider extends StreamSourceProvider {
  override def sourceSchema(
      context: SQLContext,
      schema: Option[StructType],
      provider: String,
      parameters: Map[String, String]
  ): (String, StructType) = {
    val streamed = StreamedCollection.of(parameters)
    (streamed.name, streamed.schema)
  }

  override def createSource(
      context: SQLContext,
      metadataPath: String,
      schema: Option[StructType],
      provider: String,
      parameters: Map[String, String]
  ): Source =
    new CollectionSource(
      context.sparkSession.asInstanceOf[classic.SparkSession],
      StreamedCollection.of(parameters)
    )
}
