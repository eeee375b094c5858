package org.apache.spark.sql.slackwater.programs

import org.scalatest.funsuite.AnyFunSuite

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.slackwater.arrangements.MemoryBudget
import org.apache.spark.sql.types.{LongType, StructType}

final class ScannedIndexSpec extends AnyFunSuite {
  private val columns = new StructType().add("k", LongType)

  private val projected = UnsafeProjection.create(columns)

  private def row(value: Long): UnsafeRow = projected(InternalRow(value)).copy()

  private def newTick(): TickContext =
    new TickContext(10, 20, 1, _ => Updates.none, TickBudget.unlimited, Some(Before(null, null)))

  private def indexOf(budget: MemoryBudget, rows: Int): ScannedIndex =
    new ScannedIndex(1, 1, "tides", budget)((_, wanted) =>
      Contents.of(
        (0L until rows.toLong).iterator
          .map(row)
          .filter(wanted.contains)
          .map(each => (each, each.copy(), 1L))
      )
    )

  private def wantAll(index: ScannedIndex, tick: TickContext, rows: Int): Unit =
    index.want(tick)(take => (0L until rows.toLong).foreach(i => take(row(i))))

  test("the indexes of all ticks share one budget, and give back what they took") {
    val rows = 20000
    val alone = new MemoryBudget(Long.MaxValue)
    val measured = indexOf(alone, rows)
    wantAll(measured, newTick(), rows)
    val needed = alone.used
    measured.close()
    assert(needed > 0 && alone.used == 0)

    val limit = needed * 20
    val shared = new MemoryBudget(limit)
    val tick = newTick()
    val indexes = Seq.fill(30)(indexOf(shared, rows))
    val ended = intercept[TickEnded](indexes.foreach(wantAll(_, tick, rows)))
    assert(ended.reason == "large")
    assert(needed <= shared.used && shared.used <= limit)
    indexes.foreach(_.close())
    assert(shared.used == 0)
  }
}
