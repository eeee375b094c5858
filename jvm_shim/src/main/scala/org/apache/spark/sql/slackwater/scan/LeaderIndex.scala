package org.apache.spark.sql.slackwater.scan

import java.util.Base64

import scala.util.Try
import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.process.SparkSessions
import org.apache.spark.sql.slackwater.protocol.{Coordinator, Wire}
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
    override val keys: Seq[Expression]
) extends CollectionIndex {
  override def name: String = offer.name
  override def keyTypes: Seq[DataType] = keys.map(_.dataType)

  /** Whatever goes wrong there does not happen to the statement, which has the parts. */
  override def found(
      wanted: Seq[InternalRow],
      asOf: Long,
      offered: Long,
      most: Int
  ): Option[FoundRows] =
    try looked(wanted, asOf, most)
    catch { case NonFatal(_) => None }

  private def looked(wanted: Seq[InternalRow], asOf: Long, most: Int): Option[FoundRows] = {
    val keyOf = IndexKeys.ofValues(this)
    val keys = wanted.distinctBy(row => keyOf(row).copy())
    if (keys.isEmpty) Some(FoundRows(offer.upper, Nil)) else asked(keys, asOf, most)
  }

  private def asked(wanted: Seq[InternalRow], asOf: Long, most: Int): Option[FoundRows] = {
    val body = SparkSessions
      .request(session)
      .put("program", offer.program)
      .put("keys", Wire.base64(Wire.encode(wanted.iterator, LeaderIndex.schemaOf(keyTypes))))
      .put("as_of", asOf)
      .put("below", math.min(offer.upper, asOf + 1))
      .put("rows", most)
      .put("bytes", LeaderIndex.mostBytes)
    for {
      rows <- Option(leader.call("/v1/peek", body).get("rows")).filterNot(_.isNull)
      found <- Wire.decodeIfWhole(Base64.getDecoder.decode(rows.asText), columns)
    } yield FoundRows(offer.upper, found.map(_ -> 1L))
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
    for {
      leader <- scan.leader if isWhole && !SparkSessions.isInternal(session)
      keys <- offer.keys.map(_.flatMap(byName.get)) if keys.size == offer.keys.get.size
    } yield new LeaderIndex(
      session,
      leader,
      offer,
      StructType(scan.named.map { case (name, a) => StructField(name, a.dataType) }),
      keys.zip(offer.keys.get).map { case (a, name) => a.withName(name) }
    )
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
