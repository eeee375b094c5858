package org.apache.spark.sql.slackwater.protocol

import java.io.ByteArrayOutputStream
import java.util.Base64

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  BoundReference,
  Expression,
  Literal,
  UnsafeProjection,
  UnsafeRow
}
import org.apache.spark.sql.catalyst.util.ResolveDefaultColumns
import org.apache.spark.sql.execution.arrow.{ArrowBatchStreamWriter, ArrowConverters}
import org.apache.spark.sql.slackwater.values.{Reshaped, Stored}
import org.apache.spark.sql.types.{LongType, StructType}

/** JSON and Arrow as the coordinator's protocol has them. */
private[slackwater] object Wire {
  val TimeColumn: String = Stored.Time
  val DiffColumn: String = Stored.Diff

  def base64(bytes: Array[Byte]): String = Base64.getEncoder.encodeToString(bytes)

  def longOption(node: JsonNode): Option[Long] =
    if (node == null || node.isNull || node.isMissingNode) None else Some(node.asLong)

  /** `schema`, whose columns have the names of files, with the update columns, in the order in which
    * files have them.
    */
  def updateSchema(schema: StructType): StructType =
    schema.add(TimeColumn, LongType, nullable = false).add(DiffColumn, LongType, nullable = false)

  /** The rows as one Arrow IPC stream, which has a schema even without rows; nested types are as
    * they are stored.
    */
  def encode(rows: Iterator[InternalRow], schema: StructType): Array[Byte] = {
    val out = new ByteArrayOutputStream()
    val form = storedForm(schema)
    val stored = Stored.schema(schema)
    val writer = new ArrowBatchStreamWriter(stored, out, "UTC", false, false)
    val batches = ArrowConverters.toBatchIterator(
      rows.map(form),
      stored,
      65536L,
      "UTC",
      false,
      false,
      TaskContext.get()
    )
    writer.writeBatches(batches)
    writer.end()
    out.toByteArray
  }

  /** A row of `schema` as it is stored, valid until the next one. */
  def storedForm(schema: StructType): InternalRow => InternalRow = {
    val columns = schema.fields.toIndexedSeq.zipWithIndex.map { case (field, i) =>
      BoundReference(i, field.dataType, field.nullable)
    }
    val stored = columns.map(Stored.of)
    if (stored.exists(_.exists(_.isInstanceOf[Reshaped]))) UnsafeProjection.create(stored)
    else identity
  }

  /** The rows of Arrow IPC streams with exactly the columns of `schema`, by the names of streams.
    *
    * Columns go by name. One that a stream lacks was added to the relation later, and has the
    * value that it got then.
    */
  def decode(streams: Iterator[Array[Byte]], schema: StructType): Seq[UnsafeRow] =
    streams.flatMap(bytes => decodeStream(bytes, schema)).toIndexedSeq

  private def decodeStream(bytes: Array[Byte], schema: StructType): Seq[UnsafeRow] =
    decoded(bytes)((rows, found) => projected(rows, found, schema))

  /** The rows of a stream with the columns of `schema`; None: it has not all of them. */
  def decodeIfWhole(bytes: Array[Byte], schema: StructType): Option[IndexedSeq[UnsafeRow]] =
    decoded(bytes) { (rows, found) =>
      Option.when(schema.fieldNames.forall(found.fieldNames.contains))(
        projected(rows, found, schema)
      )
    }

  /** The rows of a stream, with all columns that it has, as they are stored. */
  def decodeWhole(bytes: Array[Byte]): StreamRows = decoded(bytes) { (rows, found) =>
    val whole = UnsafeProjection.create(found)
    StreamRows(found, rows.map(row => whole(row).copy()).toIndexedSeq)
  }

  private def decoded[A](bytes: Array[Byte])(read: (Iterator[InternalRow], StructType) => A): A = {
    val (rows, found) = ArrowConverters.fromIPCStream(bytes)
    try read(rows, found)
    finally rows.close()
  }

  private[protocol] def projected(
      rows: Iterator[InternalRow],
      found: StructType,
      schema: StructType
  ): IndexedSeq[UnsafeRow] = {
    lazy val absent = ResolveDefaultColumns.existenceDefaultValues(schema)
    val columns = schema.fields.zipWithIndex.map { case (field, i) =>
      found.fields.indexWhere(_.name == field.name) match {
        case -1 => Literal.fromObject(absent(i), field.dataType): Expression
        case at =>
          Stored.restored(BoundReference(at, found(at).dataType, nullable = true), field.dataType)
      }
    }
    val project = UnsafeProjection.create(columns.toSeq)
    rows.map(row => project(row).copy()).toIndexedSeq
  }

  def inlineStreams(relation: JsonNode): Iterator[Array[Byte]] =
    relation.path("inline").elements().asScala.map(node => Base64.getDecoder.decode(node.asText))
}

/** The rows of an Arrow IPC stream.
  *
  * @param schema
  *   the columns that the stream has, as they are stored
  */
private[slackwater] final case class StreamRows(schema: StructType, rows: IndexedSeq[UnsafeRow]) {

  /** The same rows with the columns of `wanted`, as `Wire.decode` gives them. */
  def over(wanted: StructType): IndexedSeq[UnsafeRow] =
    Wire.projected(rows.iterator, schema, wanted)
}
