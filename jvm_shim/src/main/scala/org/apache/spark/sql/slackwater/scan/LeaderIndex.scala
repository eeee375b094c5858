package org.apache.spark.sql.slackwater.scan

import java.util.Base64

import scala.util.Try
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.hold.Hold
import org.apache.spark.sql.slackwater.process.SparkSessions
import org.apache.spark.sql.slackwater.protocol.{Coordinator, Errors, Json, Wire}
import org.apache.spark.sql.slackwater.scan.logical.{IndexOffer, Indexed}
import org.apache.spark.sql.slackwater.values.Stored
import org.apache.spark.sql.types.{DataType, StructField, StructType}

/** An index in the driver of the leader, for an application that has joined it: it asks the
  * coordinator, which answers at the time of the statement, or not at all.
  */
private[scan] final class LeaderIndex(
    session: SparkSession,
    leader: Coordinator,
    offer: IndexOffer,
    override val columns: StructType,
    override val keys: Seq[Expression],
    hold: Option[Hold]
) extends CollectionIndex {
  override def name: String = offer.name
  override def keyTypes: Seq[DataType] = keys.map(_.dataType)

  /** Whatever goes wrong there does not happen to the statement, which has the parts. That it is
    * cancelled does.
    */
  override def found(
      wanted: Seq[InternalRow],
      asOf: Long,
      offered: Long,
      most: Int
  ): Option[FoundRows] = {
    val keyOf = IndexKeys.ofValues(this)
    val keys = wanted.distinctBy(row => keyOf(row).copy())
    if (keys.isEmpty) Some(FoundRows(offered, Nil))
    else {
      val rows = Wire.encode(keys.iterator, LeaderIndex.schemaOf(keyTypes))
      peeked(asOf, most)(_.put("keys", Wire.base64(rows)))(rowsOf(_, columns))
    }
  }

  override def all(
      asOf: Long,
      offered: Long,
      most: Int,
      wanted: Finishing
  ): Option[Found] = peeked(asOf, most) { body =>
    // Where nothing is read under the hold, what is planned here is planned once more to be read.
    hold.filterNot(_.isOver).foreach(each => body.put("hold", each.name))
    body.putNull("keys")
  }(answer => rowsOf(answer, stored).orElse(fileOf(answer)))

  private def peeked[A <: Found](asOf: Long, most: Int)(
      keys: ObjectNode => ObjectNode
  )(found: JsonNode => Option[A]): Option[A] = {
    val body = SparkSessions.request(session).put("index", offer.id).put("as_of", asOf)
    keys(body).put("rows", most).put("bytes", LeaderIndex.mostBytes)
    try found(leader.call("/v1/peek", body))
    catch { case NonFatal(error) if !Errors.isCancellation(error) => None }
  }

  /** The columns under the names that they have in files. */
  private def stored: StructType = Stored.columns(columns)

  private def rowsOf(answer: JsonNode, named: StructType): Option[FoundRows] =
    for {
      rows <- Option(answer.get("rows")).filterNot(_.isNull)
      found <- Wire.decodeIfWhole(Base64.getDecoder.decode(rows.asText), named)
    } yield FoundRows(answer.get("upper").asLong, found.map(_ -> 1L))

  private def fileOf(answer: JsonNode): Option[FoundFile] =
    Option(answer.get("file")).filterNot(_.isNull).filter(isWhole).map { file =>
      val files = Json.obj()
      files.putArray("files").add(file)
      FoundFile(answer.get("upper").asLong, files)
    }

  /** Whether the file has the columns as they are known here. */
  private def isWhole(file: JsonNode): Boolean = {
    val written = DataType.fromJson(file.get("schema").asText).asInstanceOf[StructType]
    val byName = written.map(field => field.name -> field.dataType).toMap
    stored.forall { field =>
      byName.get(field.name).exists(DataType.equalsStructurally(_, field.dataType, true))
    }
  }
}

private[slackwater] object LeaderIndex {

  /** So many bytes come from the leader at once. */
  val mostBytes: Int = 4 << 20

  /** None: the application leads, or rows of the relation are wanted that no index has. */
  private[scan] def of(
      session: SparkSession,
      offer: IndexOffer,
      scan: Indexed
  ): Option[LeaderIndex] = {
    val byName = scan.named.toMap
    val isWhole = scan.stored.forall { parts =>
      val names = parts.schema.fieldNames.toSet
      scan.named.forall { case (name, _) => names(Stored.column(name)) }
    }
    val keys = offer.keys.filter(_.forall(byName.contains)).getOrElse(Nil)
    scan.leader.filter(_ => isWhole && !SparkSessions.isInternal(session)).map { leader =>
      new LeaderIndex(
        session,
        leader,
        offer,
        StructType(scan.named.map { case (name, a) => StructField(name, a.dataType) }),
        keys.map(name => byName(name).withName(name)),
        scan.stashing
      )
    }
  }

  private def schemaOf(keys: Seq[DataType]): StructType =
    StructType(keys.zipWithIndex.map { case (kind, i) => StructField(s"key$i", kind) })

  /** What a leader answers: the rows of the keys that are in the Arrow IPC stream, as such a stream;
    * null where the index has not got them, or they are too many.
    */
  def answer(
      program: String,
      keys: Array[Byte],
      asOf: Long,
      below: Long,
      mostRows: Int,
      mostBytes: Int
  ): Array[Byte] = {
    val found = for {
      index <- CollectionIndexes.find(program)
      wanted = Wire.decode(Iterator(keys), schemaOf(index.keyTypes))
      // It may have forgotten what was before the time at which it was complete.
      rows <- Try(index.before(wanted, asOf, below, mostRows)).toOption.flatten
      if rows.map(_.getSizeInBytes.toLong).sum <= mostBytes
    } yield Wire.encode(rows.iterator, index.columns)
    found.orNull
  }
}
