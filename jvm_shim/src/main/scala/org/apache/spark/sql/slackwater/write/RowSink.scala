package org.apache.spark.sql.slackwater.write

import java.nio.ByteBuffer
import java.util.{Date, UUID}

import scala.collection.mutable.ArrayBuffer

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.hadoop.mapreduce.{Job, JobID, TaskAttemptContext, TaskAttemptID, TaskID, TaskType}
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl

import org.apache.spark.{SparkContext, SparkEnv, TaskContext}
import org.apache.spark.executor.OutputMetrics
import org.apache.spark.internal.config.MAX_RESULT_SIZE
import org.apache.spark.internal.io.SparkHadoopWriterUtils
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.datasources.{OutputWriter, OutputWriterFactory}
import org.apache.spark.sql.slackwater.protocol.{ObjectStore, Wire}
import org.apache.spark.sql.slackwater.scan.datasources.PartFormat
import org.apache.spark.sql.slackwater.values.Stored
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.SerializableConfiguration

/** A Parquet file that a task has written. Times and diffs are those of its update columns. */
private[slackwater] final case class WrittenFile(
    uri: String,
    rows: Long,
    sizeBytes: Long,
    modifiedMs: Long,
    times: Option[TimeRange]
) {

  /** As the protocol has files, but for their times. */
  def describe(node: ObjectNode): ObjectNode = node
    .put("uri", uri)
    .put("rows", rows)
    .put("size_bytes", sizeBytes)
    .put("modified_ms", modifiedMs)
}

/** The least and greatest time of a file's updates, and whether a diff is not +1. */
private[slackwater] final case class TimeRange(min: Long, max: Long, retracts: Boolean) {
  def including(time: Long, diff: Long): TimeRange =
    TimeRange(math.min(min, time), math.max(max, time), retracts || diff != 1)
}

/** What one task wrote: few rows as an Arrow IPC stream, many as a file. */
private[slackwater] final case class Written(
    inline: Option[Array[Byte]],
    inlineRows: Long,
    files: Seq[WrittenFile]
)

private[slackwater] object Written {

  /** As bytes, which any serializer of the application's takes: it may refuse unregistered classes.
    */
  private def packed(written: Written): Array[Byte] =
    SparkEnv.get.closureSerializer.newInstance().serialize(written).array()

  private def unpacked(bytes: Array[Byte]): Written =
    SparkEnv.get.closureSerializer
      .newInstance()
      .deserialize[Written](ByteBuffer.wrap(bytes), Thread.currentThread.getContextClassLoader)

  /** Runs a job that puts down the rows of `rows`. */
  def byJob(rows: RDD[InternalRow], sink: RowSink): Seq[Written] =
    rows.sparkContext
      .runJob(
        rows,
        (c: TaskContext, it: Iterator[InternalRow]) => packed(sink.drain(c.partitionId(), it))
      )
      .toSeq
      .map(unpacked)
}

private[slackwater] final case class InlineLimit(rows: Long, bytes: Long)

private[slackwater] object InlineLimit {
  private val Rows = 20000L
  private val Bytes = 2L * 1024 * 1024

  /** A whole statement's. */
  val statement: InlineLimit = InlineLimit(Rows, Bytes)

  /** One task's, so that the driver never holds much more than a statement's, and takes it: all tasks
    * together bring no more than a share of what they may.
    */
  def ofTask(context: SparkContext, tasks: Int): InlineLimit = {
    val limit = context.getConf.get(MAX_RESULT_SIZE)
    val own = math.max(Bytes / math.max(1, tasks), 64L * 1024)
    InlineLimit(Rows, if (limit <= 0) own else math.min(own, limit / 4 / math.max(1, tasks)))
  }

  val none: InlineLimit = InlineLimit(0L, 0L)
}

/** Where and how the rows of one write are put down. Goes to the executors. */
private[slackwater] final class RowSink(
    schema: StructType,
    directory: String,
    writeId: String,
    limit: InlineLimit,
    withTimes: Boolean,
    factory: OutputWriterFactory,
    configuration: SerializableConfiguration
) extends Serializable {

  def limitedTo(limit: InlineLimit): RowSink =
    new RowSink(schema, directory, writeId, limit, withTimes, factory, configuration)

  /** A task's own writer; `commit` or `abort` ends it. */
  def open(partition: Int): OpenSink = new OpenSink(partition)

  def drain(partition: Int, rows: Iterator[InternalRow]): Written = {
    val sink = open(partition)
    try {
      rows.foreach(sink.write)
      sink.commit()
    } catch {
      case e: Throwable =>
        sink.abort()
        throw e
    }
  }

  final class OpenSink(partition: Int) {
    private val copy = UnsafeProjection.create(schema)
    private lazy val storedForm = Wire.storedForm(schema)
    private val kept = ArrayBuffer.empty[UnsafeRow]
    private var keptBytes = 0L
    private var begun: Option[Path] = None
    private var writer: OutputWriter = _
    private var written = 0L
    private var times: Option[TimeRange] = None

    def write(row: InternalRow): Unit = {
      val unsafe = copy(row)
      if (writer != null) put(unsafe)
      else {
        kept += unsafe.copy()
        keptBytes += unsafe.getSizeInBytes
        if (kept.size > limit.rows || keptBytes > limit.bytes) spill()
      }
    }

    def commit(): Written =
      if (writer == null) {
        count(kept.size.toLong)
        val inline = Option.when(kept.nonEmpty)(Wire.encode(kept.iterator, schema))
        Written(inline, kept.size.toLong, Nil)
      } else {
        writer.close()
        val path = new Path(writer.path())
        val status = path.getFileSystem(configuration.value).getFileStatus(path)
        val uri = ObjectStore.uri(status.getPath)
        count(written)
        metrics.foreach(_.setBytesWritten(status.getLen))
        val file = WrittenFile(uri, written, status.getLen, status.getModificationTime, times)
        Written(None, 0L, Seq(file))
      }

    /** Leaves no file, also when the one that was begun has no writer yet. */
    def abort(): Unit =
      try if (writer != null) writer.close()
      finally begun.foreach(path => path.getFileSystem(configuration.value).delete(path, false))

    private def spill(): Unit = {
      val context = attempt(partition)
      val name = s"$writeId-$partition-${UUID.randomUUID}${factory.getFileExtension(context)}"
      val path = new Path(ObjectStore.path(directory), name)
      val stored = Stored.schema(schema)
      begun = Some(path)
      writer = PartFormat.within(factory.newInstance(path.toString, stored, context))
      kept.foreach(put)
      kept.clear()
    }

    private def put(row: UnsafeRow): Unit = {
      writer.write(storedForm(row))
      written += 1
      if (written % RowSink.countedEach == 0) count(written)
      if (withTimes) {
        val time = row.getLong(schema.length - 2)
        val diff = row.getLong(schema.length - 1)
        times = Some(times.getOrElse(TimeRange(time, time, retracts = false)).including(time, diff))
      }
    }
  }

  /** As Spark's own writers do, so that it shows how far a job is. */
  private def count(rows: Long): Unit = metrics.foreach(_.setRecordsWritten(rows))

  private def metrics: Option[OutputMetrics] =
    Option(TaskContext.get()).map(_.taskMetrics().outputMetrics)

  private def attempt(partition: Int): TaskAttemptContext = {
    val job: JobID = SparkHadoopWriterUtils.createJobID(new Date(), 0)
    val number = Option(TaskContext.get()).fold(0)(_.attemptNumber())
    val id = new TaskAttemptID(new TaskID(job, TaskType.MAP, partition), number)
    val conf = new Configuration(configuration.value)
    conf.set("mapreduce.job.id", job.toString)
    conf.set("mapreduce.task.id", id.getTaskID.toString)
    conf.set("mapreduce.task.attempt.id", id.toString)
    conf.setBoolean("mapreduce.task.ismap", true)
    new TaskAttemptContextImpl(conf, id)
  }
}

private[slackwater] object RowSink {

  /** So many rows are written before the count is told anew. */
  private val countedEach = 1024L

  /** A sink for rows of `schema` in `directory`; `withTimes` if its last columns are an update's. */
  def create(
      session: SparkSession,
      schema: StructType,
      directory: String,
      writeId: String,
      limit: InlineLimit,
      withTimes: Boolean = false
  ): RowSink = {
    val job = Job.getInstance(session.sessionState.newHadoopConf())
    val conf = job.getConfiguration
    conf.set("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    ObjectStore.options(session.sparkContext, directory).foreach { case (key, value) =>
      conf.set(key, value)
    }
    val options = Map("compression" -> "snappy")
    val stored = Stored.schema(schema)
    val factory = new PartFormat("parquet").prepareWrite(session, job, options, stored)
    val shipped = new SerializableConfiguration(job.getConfiguration)
    new RowSink(schema, directory, writeId, limit, withTimes, factory, shipped)
  }
}
