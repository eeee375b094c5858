package org.apache.spark.sql.slackwater.scan

import com.fasterxml.jackson.databind.node.ObjectNode
import org.scalatest.funsuite.AnyFunSuite

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Expression, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes
import org.apache.spark.sql.slackwater.hold.{Hold, ReadStrategy}
import org.apache.spark.sql.slackwater.protocol.{Coordinator, Json, Wire}
import org.apache.spark.sql.slackwater.scan.logical.{BoundParts, BoundScan, Indexed, ScanIdentity}
import org.apache.spark.sql.slackwater.values.Stored
import org.apache.spark.sql.types.{DataType, LongType, StructType}

final class IndexScanSpec extends AnyFunSuite {
  private val columns = new StructType().add("k", LongType).add("v", LongType)
  private val asOf = 20L

  private def row(values: Long*): UnsafeRow = {
    val kinds = values.map(_ => LongType: DataType).toArray
    UnsafeProjection.create(kinds)(InternalRow.fromSeq(values)).copy()
  }

  /** One row with the key 1, as it was before `upper`. */
  private final class Behind(upper: Long) extends CollectionIndex {
    override def name: String = "by_k"
    override def columns: StructType = IndexScanSpec.this.columns
    override def keys: Seq[Expression] = toAttributes(columns).take(1)
    override def keyTypes: Seq[DataType] = Seq(LongType)
    override def found(
        wanted: Seq[InternalRow],
        asOf: Long,
        offered: Long,
        most: Int
    ): Option[FoundRows] = Some(FoundRows(upper, Seq(row(1, 1) -> 1L)))
    override def all(asOf: Long, offered: Long, most: Int, wanted: Finishing): Option[Found] = None
  }

  /** A table with the key 1 until the time 10 and a later row with the key `later` at that time. */
  private final class Scan(later: Long) {
    val strategy = new ReadStrategy
    private val bound = {
      val named = Stored.columns(columns)
      val added = Iterator[InternalRow](row(later, 2, 10, 1))
      val json = Json.obj().put("since", 0L)
      json.putArray("files")
      json.putArray("inline").add(Wire.base64(Wire.encode(added, Wire.updateSchema(named))))
      val parts = BoundParts(json: ObjectNode, named, None)
      BoundScan("t", ScanIdentity("u1", asOf, 1L), toAttributes(columns), parts)
    }

    /** How many rows are found by the key 1, and how they were read. */
    def read(index: CollectionIndex, most: Int = 10): (Option[Int], Option[String]) = {
      val noting = strategy
      val scan = new Indexed {
        override def label: String = bound.label
        override def asOf: Long = bound.asOf
        override def named = bound.named
        override protected def indexes = bound.parts.json.path("indexes")
        override def stored: Option[BoundParts] = bound.stored
        override def unindexed = bound
        override def strategy: Option[ReadStrategy] = Some(noting)
        override def leader: Option[Coordinator] = None
        override def stashing: Option[Hold] = None
      }
      strategy.begin()
      val found = IndexScan.read(index, Seq(row(1)), scan, 0L, most)
      (found.map(_.size), strategy.name)
    }
  }

  test("rows of an index that is complete are of the index alone") {
    assert(new Scan(later = 1).read(new Behind(asOf + 1)) == (Some(1), Some("fast-path")))
  }

  test("what is added to an index that is behind is not of the index") {
    assert(new Scan(later = 1).read(new Behind(10)) == (Some(2), Some("standard")))
  }

  test("of an index that is behind, nothing is added where others have changed") {
    assert(new Scan(later = 2).read(new Behind(10)) == (Some(1), Some("fast-path")))
  }

  test("an index that has too many rows was not read") {
    assert(new Scan(later = 1).read(new Behind(asOf + 1), most = 0) == (None, Some("constant")))
    assert(new Scan(later = 1).read(new Behind(10), most = 1) == (None, Some("constant")))
  }

  test("nobody knows how was read what has not run") {
    val strategy = new ReadStrategy
    strategy.byIndex()
    strategy.otherwise()
    assert(strategy.name.isEmpty)
  }
}
