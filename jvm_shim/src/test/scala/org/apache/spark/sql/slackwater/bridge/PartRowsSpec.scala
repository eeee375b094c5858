package org.apache.spark.sql.slackwater.bridge

import org.scalatest.funsuite.AnyFunSuite

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.slackwater.protocol.Wire
import org.apache.spark.sql.types.{DoubleType, LongType, StringType, StructType}
import org.apache.spark.unsafe.types.UTF8String

final class PartRowsSpec extends AnyFunSuite {
  private val columns =
    new StructType().add("k", LongType).add("v", StringType).add("w", DoubleType)

  private def rows(count: Int): Seq[UnsafeRow] = {
    val project = UnsafeProjection.create(Wire.updateSchema(columns))
    (0 until count).map { i =>
      val text = if (i % 3 == 0) null else UTF8String.fromString(s"text $i")
      project(InternalRow(i.toLong, text, i / 2.0, 7L, 1L)).copy()
    }
  }

  private val stream = Wire.encode(rows(100).iterator, Wire.updateSchema(columns))

  private def only(names: String*): StructType =
    Wire.updateSchema(StructType(columns.filter(field => names.contains(field.name))))

  test("a part is decoded twice at most, whatever sets of columns are read") {
    val part = new InlinePart(stream)
    val sets = Seq(only("v"), only("k", "w"), only("k"), only(), only("w"), only("k", "v", "w"))
    for ((set, i) <- sets.zipWithIndex) {
      assert(part.rows(set).get == Wire.decode(Iterator(stream), set))
      assert(part.decoded == math.min(i + 1, 2))
    }
  }

  test("a part that lacks a column says so, before and after it was decoded as a whole") {
    val narrow = only("k")
    val cut = Wire.encode(Wire.decode(Iterator(stream), narrow).iterator, narrow)
    val part = new InlinePart(cut)
    assert(part.rows(only("k", "v")).isEmpty && part.rows(only("v")).isEmpty)
    assert(part.rows(narrow).get == Wire.decode(Iterator(stream), narrow))
  }

  test("what is kept stays within its limit, and what was used last stays") {
    val part = new InlinePart(stream)
    val kept = new PartRows(4 * (part.size + 256))
    for (id <- 0L until 8L) {
      kept.add(("here", id), new InlinePart(stream))
      kept.inline(("here", 0L))
    }
    val left = (0L until 8L).filter(id => kept.inline(("here", id)).isDefined)
    assert(left == Seq(0L, 5L, 6L, 7L))
    assert(kept.inline(("there", 7L)).isEmpty)
    new PartRows(10).add(("here", 1L), part)
  }
}
