package org.apache.spark.sql.slackwater.stream

import java.util.concurrent.TimeUnit.NANOSECONDS

import org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes
import org.apache.spark.sql.classic.{DataFrame, Dataset, SparkSession}
import org.apache.spark.sql.connector.read.streaming.{
  Offset => SparkOffset,
  ReadLimit,
  SupportsTriggerAvailableNow
}
import org.apache.spark.sql.execution.streaming.{Offset, Source}
import org.apache.spark.sql.slackwater.protocol.DataErrors
import org.apache.spark.sql.types.StructType

/** A collection as a source of Structured Streaming: each change once, in the batch of its time.
  *
  * The offsets are times. A batch has all changes after its start, and none after its end: so a batch
  * that is read again is the same, as long as the collection remembers its start.
  */
private[stream] final class CollectionSource(session: SparkSession, streamed: StreamedCollection)
    extends Source
    with SupportsTriggerAvailableNow {
  private val reader = new CollectionReader(session, streamed)
  private var lookedNs = Option.empty[Long]
  private var target = Option.empty[Long]

  override def schema: StructType = streamed.schema

  override def getOffset: Option[Offset] =
    throw new IllegalStateException("latestOffset says where a batch ends")

  /** A batch has all that there is: how many rows that are nobody knows before they are read. */
  override def latestOffset(start: SparkOffset, limit: ReadLimit): SparkOffset =
    Option(start).map(StreamOffset.of) match {
      case None       => offset(first())
      case Some(seen) =>
        requireSame(seen)
        target.fold(next(seen))(until => if (until > seen.timestamp) offset(until) else seen)
    }

  override def prepareForTriggerAvailableNow(): Unit = target = Some(reader.look(None, None).time)

  override def getBatch(start: Option[Offset], end: Offset): DataFrame = {
    val (after, until) = (start.map(StreamOffset.of), StreamOffset.of(end))
    requireSame(until)
    val batch =
      StreamedBatch(reader, after.map(_.timestamp), until.timestamp, toAttributes(schema))
    Dataset.ofRows(session, batch)
  }

  override def stop(): Unit = reader.close()

  private def first(): Long =
    reader.look(None, streamed.options.asOf.orElse(target)).time

  /** Spark asks a hundred times a second, and takes an answer for that of this moment. */
  private def next(seen: StreamOffset): SparkOffset = {
    lookedNs.foreach { last =>
      NANOSECONDS.sleep(CollectionSource.PauseNs - (System.nanoTime - last))
    }
    val found = reader.look(Some(seen.timestamp), None)
    lookedNs = Some(System.nanoTime)
    val quiet = found.time - seen.timestamp >= CollectionSource.QuietMs
    if (found.time > seen.timestamp && (found.changed || quiet)) offset(found.time) else seen
  }

  private def offset(time: Long): StreamOffset = StreamOffset(streamed.id, time)

  private def requireSame(offset: StreamOffset): Unit =
    if (offset.collection != streamed.id)
      throw DataErrors.streamReplaced(streamed.name, offset.collection, streamed.id)
}

private object CollectionSource {

  /** At most so often the coordinator is asked for changes. */
  private val PauseNs = 100L * 1000 * 1000

  /** After so long without a change an empty batch moves the stream on: it goes on from there when it
    * starts again.
    */
  private val QuietMs = 10L * 60 * 1000
}
