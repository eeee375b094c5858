package org.apache.spark.sql.slackwater.write

import java.io.InterruptedIOException
import java.nio.file.{Files, Path => LocalPath}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.hadoop.mapreduce.TaskAttemptContext
import org.scalatest.funsuite.AnyFunSuite

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.datasources.{OutputWriter, OutputWriterFactory}
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.SerializableConfiguration

final class RowSinkSpec extends AnyFunSuite {
  private val schema = new StructType().add("k", "long")

  /** Begins a file, and is interrupted before it has a writer for it. */
  private object Interrupted extends OutputWriterFactory {
    override def getFileExtension(context: TaskAttemptContext): String = ".parquet"

    override def newInstance(
        path: String,
        dataSchema: StructType,
        context: TaskAttemptContext
    ): OutputWriter = {
      new Path(path).getFileSystem(context.getConfiguration).create(new Path(path)).close()
      throw new InterruptedIOException()
    }
  }

  test("an interruption while a file is begun leaves no file") {
    val folder = Files.createTempDirectory("sink")
    val conf = new SerializableConfiguration(new Configuration())
    val sink =
      new RowSink(schema, folder.toUri.toString, "w", InlineLimit.none, false, Interrupted, conf)
    def files: Array[LocalPath] = folder.toFile.listFiles().map(_.toPath)
    val opened = sink.open(0)
    val _ = intercept[InterruptedIOException](opened.write(InternalRow(1L)))
    assert(files.nonEmpty)
    opened.abort()
    assert(files.isEmpty)
  }
}
