package org.apache.spark.sql.slackwater.scan.datasources

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.hadoop.fs.FileStatus

import org.apache.spark.sql.slackwater.protocol.{ObjectStore, Wire}

/** One file of a relation.
  *
  * @param lastTime
  *   no row has a later time, in ms
  * @param retracts
  *   whether a row's diff may be another one than 1, where rows have diffs of their own
  */
private[slackwater] final case class PartFile(
    status: FileStatus,
    rows: Long,
    uniform: Option[Uniform],
    lastTime: Option[Long],
    retracts: Boolean
) {

  /** Each row is added once, and nothing is taken away. */
  def isPlain: Boolean = uniform.fold(!retracts)(_.diff == 1L)
}

/** The time and the diff that all rows of a file have. */
private[slackwater] final case class Uniform(time: Long, diff: Long)

private[slackwater] object Files {
  def of(relation: JsonNode): Seq[PartFile] =
    relation.path("files").asScala.toIndexedSeq.map { file =>
      val status = new FileStatus(
        file.get("size_bytes").asLong,
        false,
        0,
        0L,
        file.get("modified_ms").asLong,
        ObjectStore.path(file.get("uri").asText)
      )
      val uniform = for {
        time <- Wire.longOption(file.get("time"))
        diff <- Wire.longOption(file.get("diff"))
      } yield Uniform(time, diff)
      PartFile(
        status,
        file.path("rows").asLong,
        uniform,
        Option(file.get("max_time")).flatMap(Wire.longOption),
        file.path("retractions").asBoolean(true)
      )
    }
}
