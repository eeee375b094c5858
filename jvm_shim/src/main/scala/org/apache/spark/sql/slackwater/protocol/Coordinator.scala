package org.apache.spark.sql.slackwater.protocol

import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.types.StructType

/** The coordinator of one environment, as this driver's sessions see it.
  *
  * Safe to use from many threads. The process is started, or found, with the first call. Every
  * method raises the coordinator's own error (see [[Errors]]), `SLACKWATER_COORDINATOR_START` when
  * the process cannot be started, or `SLACKWATER_STATEMENT_INTERRUPTED` when it ended during a call
  * that must not be repeated. An interrupted thread gets an `InterruptedException`.
  */
trait Coordinator {

  /** Where the environment lives, as an absolute path or a URI. */
  def location: String

  /** Posts `body` to `path` and gives the JSON answer. Notices in it have been shown. */
  def call(path: String, body: ObjectNode): JsonNode

  /** As `call`; None where the coordinator answers that there is no such object. */
  def find(path: String, body: ObjectNode): Option[JsonNode]

  /** What the catalog has under that name, as of now; None: it has nothing.
    *
    * @param request
    *   the request of `/v1/catalog/load`, which is made only where the answer is not known
    */
  def load(namespace: String, name: String)(request: => ObjectNode): Option[ObjectDescription]

  /** Posts `body` to `/v1/bind`, and remembers what it answers to the reads in it, which name no time.
    */
  def bind(body: ObjectNode, reads: Seq[RelationRead]): JsonNode

  /** A read of the session that has just begun and may do without a bind; None: it has to be bound. */
  def known(session: String, reads: Seq[RelationRead]): Option[KnownRead]

  /** Notes that a read without a bind has ended, for the history of statements. */
  def tell(read: ObjectNode, beganNs: Long): Unit

  /** Tells how far a write is, if the coordinator lives; what it says of it. Starts nothing. */
  def writing(body: ObjectNode): Option[String]

  /** Posts `body` to `/v1/execute` and gives the Arrow IPC stream that it answers. */
  def execute(body: ObjectNode): Array[Byte]
}

/** A relation that a query reads, and the columns that its plan takes for NOT NULL. */
final case class RelationRead(id: String, notNull: Seq[String])

/** A read at the read timestamp of the coordinator's oracle, as of a moment after it has begun.
  *
  * @param timestamp
  *   in ms
  * @param offers
  *   for each of its relations the indexes on it, in the protocol's form
  * @param resultBytes
  *   the most that it may bring to the driver
  * @param stillCounts
  *   after all rows were found: whether they are right
  */
final case class KnownRead(
    timestamp: Long,
    offers: Seq[JsonNode],
    resultBytes: Long,
    stillCounts: () => Boolean
)

/** A collection or view, as the coordinator's catalog describes it.
  *
  * @param columns
  *   read when somebody wants them: one with columns that Spark cannot read has a name, and can be
  *   dropped
  */
final case class ObjectDescription(
    id: String,
    kind: String,
    schemaName: String,
    name: String,
    columns: Option[JsonNode],
    writable: Boolean,
    properties: Map[String, String],
    comment: Option[String],
    view: Option[ViewDescription]
) {

  /** Raises SLACKWATER_UNSUPPORTED_TYPE for what Spark cannot read. */
  lazy val schema: StructType =
    try columns.fold(new StructType())(Json.schema)
    catch {
      case NonFatal(error) =>
        throw Errors.user(
          "SLACKWATER_UNSUPPORTED_TYPE",
          "typeName" -> s"of a column of $schemaName.$name (${error.getMessage})"
        )
    }
}

/** A view's query and where its names were resolved when it was created. */
final case class ViewDescription(query: String, catalog: String, namespace: Seq[String])
