package org.apache.spark.sql.slackwater.bridge

import java.io.File

import org.apache.hadoop.fs.{FileStatus, Path}

import org.apache.spark.sql.catalyst.csv.{CSVInferSchema, CSVOptions}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.datasources.FileFormat
import org.apache.spark.sql.execution.datasources.csv.CSVFileFormat
import org.apache.spark.sql.execution.datasources.json.JsonFileFormat
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat
import org.apache.spark.sql.types._

/** The columns that Spark gives to files which say nothing of their types.
  *
  * The files are given one by one: there is no glob, no hidden file and no partition in their
  * paths.
  */
private[bridge] final class Inference(session: SparkSession) {
  private val conf = session.sessionState.conf

  /** @param groups
    *   paths of local files; those of a group have the same columns in the same places. What the
    *   first group has are the columns, whose types are those that all groups agree on by names.
    * @param options
    *   those of Spark's reader of this format
    */
  def columns(
      format: String,
      options: Map[String, String],
      groups: Seq[Seq[String]]
  ): StructType = {
    val reader = fileFormat(format)
    val found = groups.map { group =>
      val files = group.map(path => statusOf(path, asGlob = format != "PARQUET"))
      reader.inferSchema(session, options, files).getOrElse(StructType(Nil))
    }
    plain(found.reduceLeft(agreed(options))).asInstanceOf[StructType]
  }

  private def fileFormat(format: String): FileFormat = format match {
    case "CSV"     => new CSVFileFormat
    case "JSON"    => new JsonFileFormat
    case "PARQUET" => new ParquetFileFormat
  }

  /** @param asGlob
    *   its path is a pattern for itself alone: what reads lines takes paths for patterns
    */
  private def statusOf(path: String, asGlob: Boolean): FileStatus = {
    val file = new Path(new File(path).toURI)
    val found = file.getFileSystem(session.sessionState.newHadoopConf()).getFileStatus(file)
    if (asGlob) {
      val pattern = path.replaceAll("""[\\{}\[\]*?]""", """\\$0""")
      found.setPath(new Path(new File(pattern).toURI))
    }
    found
  }

  /** The columns of `known`, with the types that hold what `other` has under their names too. */
  private def agreed(
      options: Map[String, String]
  )(known: StructType, other: StructType): StructType = {
    val types = new CSVInferSchema(
      new CSVOptions(options, conf.csvColumnPruning, conf.sessionLocalTimeZone)
    )
    val others = other.map(field => field.name -> field.dataType).toMap
    StructType(known.map { field =>
      val beside = others.getOrElse(field.name, field.dataType)
      field.copy(dataType = types.mergeRowTypes(Array(field.dataType), Array(beside)).head)
    })
  }

  /** Fields that may be NULL, without what a writer noted beside their types. */
  private def plain(kind: DataType): DataType = kind match {
    case StructType(fields) =>
      StructType(fields.map(field => StructField(field.name, plain(field.dataType))))
    case ArrayType(element, _)  => ArrayType(plain(element), containsNull = true)
    case MapType(key, value, _) => MapType(plain(key), plain(value), valueContainsNull = true)
    case other                  => other
  }
}
