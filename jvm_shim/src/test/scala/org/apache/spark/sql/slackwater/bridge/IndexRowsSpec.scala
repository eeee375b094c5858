package org.apache.spark.sql.slackwater.bridge

import org.scalatest.funsuite.AnyFunSuite

import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.slackwater.write.InlineLimit
import org.apache.spark.sql.types.{LongType, StructType}

final class IndexRowsSpec extends AnyFunSuite {
  private val row: UnsafeRow =
    UnsafeProjection.create(new StructType().add("k", LongType))(InternalRow(1L)).copy()

  private val rows = IndexRows(Some("file:/nowhere"), InlineLimit.none, 1000L, 1000L * 1000)

  test("an interruption ends it between two copies of one row") {
    var written = 0
    val counted = new rows.CountedRows(_ => {
      written += 1
      if (written == 10) Thread.currentThread.interrupt()
    })
    counted.add(row, 1000L)
    val ended = intercept[AnalysisException](counted.endKey())
    assert(ended.getCondition == "SLACKWATER_CANCELED" && written == 10)
    assert(!Thread.interrupted())
  }
}
