package org.apache.spark.sql.slackwater.scan.datasources

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.mapreduce.Job

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.datasources.{OutputWriterFactory, PartitionedFile}
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.StructType

/** Parquet as collections are stored: the same bytes whatever the application's settings are.
  *
  * @param label
  *   the name that EXPLAIN shows
  */
private[slackwater] final class PartFormat(label: String) extends ParquetFileFormat {
  override def shortName(): String = label
  override def toString: String = "Parquet"
  override def getSqlConf(session: SparkSession): SQLConf =
    PartFormat.over(super.getSqlConf(session))

  override def prepareWrite(
      session: SparkSession,
      job: Job,
      options: Map[String, String],
      schema: StructType
  ): OutputWriterFactory = {
    PartFormat.configure(job.getConfiguration)
    super.prepareWrite(session, job, options, schema)
  }

  override def buildReaderWithPartitionValues(
      session: SparkSession,
      dataSchema: StructType,
      partitionSchema: StructType,
      requiredSchema: StructType,
      filters: Seq[Filter],
      options: Map[String, String],
      hadoop: Configuration
  ): PartitionedFile => Iterator[InternalRow] = {
    PartFormat.configure(hadoop)
    super.buildReaderWithPartitionValues(
      session,
      dataSchema,
      partitionSchema,
      requiredSchema,
      filters,
      options,
      hadoop
    )
  }
}

private[slackwater] object PartFormat {

  /** What decides how values lie in a file, and what is taken for them when it is read.
    *
    * `tests/e2e/spark_settings.txt` lists all settings of Spark, and whose each is.
    */
  private val settings: Map[String, String] = Map(
    "spark.sql.caseSensitive" -> "true",
    "spark.sql.legacy.parquet.nanosAsLong" -> "false",
    "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing" -> "false",
    "spark.sql.parquet.binaryAsString" -> "false",
    "spark.sql.parquet.datetimeRebaseModeInRead" -> "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite" -> "CORRECTED",
    "spark.sql.parquet.fieldId.read.enabled" -> "false",
    "spark.sql.parquet.fieldId.write.enabled" -> "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled" -> "true",
    "spark.sql.parquet.int96AsTimestamp" -> "true",
    "spark.sql.parquet.int96RebaseModeInRead" -> "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite" -> "CORRECTED",
    "spark.sql.parquet.int96TimestampConversion" -> "false",
    "spark.sql.parquet.outputTimestampType" -> "TIMESTAMP_MICROS",
    "spark.sql.parquet.reader.respectUnknownTypeAnnotation.enabled" -> "false",
    "spark.sql.parquet.writeLegacyFormat" -> "false"
  )

  /** `conf` with the settings of collections' files. */
  def over(conf: SQLConf): SQLConf = {
    val own = conf.clone()
    settings.foreach { case (key, value) => own.setConfString(key, value) }
    own
  }

  /** Hadoop's settings have a copy of the application's, which comes before `getSqlConf`; what it
    * says of Parquet files in Hadoop's own words goes.
    */
  private def configure(hadoop: Configuration): Unit = {
    hadoop.asScala.map(_.getKey).filter(_.startsWith("parquet.")).toSeq.foreach(hadoop.unset)
    settings.foreach { case (key, value) => hadoop.set(key, value) }
  }

  /** Those settings and Spark's defaults, for code of Spark's that asks the thread. */
  def within[A](body: => A): A = SQLConf.withExistingConf(over(new SQLConf))(body)
}
