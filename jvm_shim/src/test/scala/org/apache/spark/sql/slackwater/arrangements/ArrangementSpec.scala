package org.apache.spark.sql.slackwater.arrangements

import java.util.concurrent.{Callable, Executors, TimeUnit}
import java.util.concurrent.atomic.AtomicBoolean

import scala.collection.mutable
import scala.collection.mutable.ArrayBuffer

import org.scalatest.concurrent.TimeLimits
import org.scalatest.funsuite.AnyFunSuite
import org.scalatest.time.{Seconds, Span}

import org.apache.spark.sql.types.{LongType, StringType}

final class ArrangementSpec extends AnyFunSuite with TimeLimits {
  private val key = new Rows(LongType)
  private val row = new Rows(LongType, StringType)

  private def arrangement(
      budget: MemoryBudget = new MemoryBudget(Long.MaxValue),
      shape: Shape = Shape()
  ): Arrangement = new Arrangement(1, 2, budget, "orders by customer", shape)

  private def found(in: Arrangement, of: Long, below: Long): Seq[(Long, Long, Long)] = {
    val rows = ArrayBuffer.empty[(Long, Long, Long)]
    in.lookup(key(of), below, (row, time, diff) => rows += ((row.getLong(0), time, diff)))
    rows.toSeq.sorted
  }

  private def batch(updates: (Long, Long, Long, Long)*): Batch = {
    val batch = new Batch
    for ((k, value, time, diff) <- updates) batch.add(key(k), row(value, "x"), time, diff)
    batch
  }

  test("several versions in one batch, a row deleted and inserted again") {
    val orders = arrangement()
    orders.load(Iterator((key(1L), row(10L, "x"), 1L)), 4)
    orders.append(
      batch((1, 10, 5, -1), (1, 11, 5, 1), (1, 11, 6, -1), (1, 12, 6, 1), (1, 10, 8, 1)),
      9
    )
    assert(found(orders, 1, 5) == Seq((10, 4, 1)))
    assert(found(orders, 1, 6) == Seq((10, 4, 1), (10, 5, -1), (11, 5, 1)))
    orders.allowCompaction(6)
    assert(found(orders, 1, 7) == Seq((12, 6, 1)))
    assert(found(orders, 1, 9) == Seq((10, 8, 1), (12, 6, 1)))
    assert(found(orders, 2, 9) == Seq())
    orders.close()
  }

  test("rows that cancel vanish, and their memory") {
    val orders = arrangement(shape = Shape(foldRows = 0))
    val rows = 1L to 10000L
    orders.load(rows.iterator.map(i => (key(i), row(i, "x"), 1L)), 1)
    val before = orders.bytes
    assert(orders.rows == 10000)
    orders.append(batch(rows.map(i => (i, i, 2L, -1L)): _*), 3)
    assert(orders.rows == 20000)
    while (orders.maintain(1000)) {}
    assert(orders.rows == 20000)
    orders.allowCompaction(2)
    while (orders.maintain(1000)) {}
    assert(orders.rows == 0)
    assert(orders.bytes < before / 10)
    orders.close()
  }

  test("maintenance does a bounded amount at a time") {
    val orders = arrangement(shape = Shape(segmentRows = 100, foldRows = 0))
    val rows = 1L to 10000L
    orders.load(rows.iterator.map(i => (key(i), row(i, "x"), 1L)), 1)
    orders.append(batch(rows.map(i => (i, i, 2L, -1L)): _*), 3)
    orders.allowCompaction(2)
    var left = orders.rows
    assert(orders.maintain(0) && orders.rows == left)
    while (orders.maintain(100)) {
      assert(orders.rows < left && orders.rows >= left - 600)
      left = orders.rows
    }
    assert(orders.rows == 0)
    orders.close()
  }

  test("a hot key takes linear time") {
    failAfter(Span(60, Seconds)) {
      val orders = arrangement()
      val rows = 1L to 300000L
      orders.load(
        rows.iterator.map(i => (key(if (i > 1000) 7L else i), row(i, "x"), 1L)),
        1
      )
      orders.append(batch(rows.filter(_ % 2 == 0).map(i => (7L, i, 2L, -1L)): _*), 3)
      orders.allowCompaction(2)
      var sum = 0L
      orders.lookup(key(7L), 3, (_, _, diff) => sum += diff)
      assert(sum == 299000 + 1 - 150000)
      while (orders.maintain(Int.MaxValue)) {}
      sum = 0
      orders.lookup(key(7L), 3, (row, _, diff) => if (row.getLong(0) > 1000) sum += diff)
      assert(sum == 299000 - 149500)
      orders.close()
    }
  }

  test("rows of several megabytes") {
    val orders = arrangement()
    val texts = (1 to 3).map(i => i.toString * 3000000)
    orders.load(texts.iterator.map(text => (key(1L), row(1L, text), 1L)), 1)
    val lengths = ArrayBuffer.empty[Int]
    orders.lookup(key(1L), 2, (row, _, _) => lengths += row.getUTF8String(1).numBytes)
    assert(lengths == Seq(3000000, 3000000, 3000000))
    orders.close()
  }

  test("a sink looks up in the same arrangement") {
    val orders = arrangement()
    orders.load((1L to 9L).iterator.map(i => (key(i), row(i + 1, "x"), 1L)), 1)
    val path = ArrayBuffer.empty[Long]
    def follow(from: Long): Unit = orders.lookup(
      key(from),
      2,
      (row, _, _) => {
        follow(row.getLong(0))
        path += row.getLong(0)
      }
    )
    follow(1)
    assert(path == (2L to 10L).reverse)
    orders.close()
  }

  test("what cannot be answered or done is refused") {
    val orders = arrangement()
    orders.load(Iterator((key(1L), row(1L, "x"), 1L)), 10)
    assertThrows[IllegalArgumentException](found(orders, 1, 10))
    assertThrows[IllegalArgumentException](orders.scan(10, (_, _, _, _) => ()))
    assertThrows[IllegalArgumentException](orders.append(batch((1, 1, 10, 1)), 12))
    assertThrows[IllegalArgumentException](orders.append(batch((1, 1, 12, 1)), 12))
    assertThrows[IllegalArgumentException](orders.append(batch(), 10))
    assertThrows[IllegalArgumentException](orders.allowCompaction(11))
    assertThrows[IllegalStateException](orders.load(Iterator.empty, 12))
    assertThrows[IllegalStateException](
      orders.lookup(key(1L), 11, (_, _, _) => orders.append(batch(), 12))
    )
    assertThrows[IllegalStateException](orders.lookup(key(1L), 11, (_, _, _) => orders.close()))
    assert(found(orders, 1, 11) == Seq((1, 10, 1)))
    orders.close()
    assertThrows[IllegalStateException](found(orders, 1, 11))
    assertThrows[IllegalStateException](orders.append(batch(), 12))
  }

  test("a sink that fails leaves the arrangement usable") {
    val orders = arrangement()
    orders.load(Iterator((key(1L), row(1L, "x"), 1L)), 10)
    orders.append(batch((1, 2, 11, 1)), 12)
    orders.allowCompaction(11)
    assertThrows[RuntimeException](
      orders.lookup(key(1L), 12, (_, _, _) => throw new RuntimeException)
    )
    assert(found(orders, 1, 12) == Seq((1, 11, 1), (2, 11, 1)))
    orders.append(batch((1, 3, 12, 1)), 13)
    orders.close()
  }

  test("a load that fails leaves it empty, without memory") {
    val budget = new MemoryBudget(1 << 20)
    val orders = arrangement(budget)
    val many = Iterator.from(1).map(i => (key(i.toLong), row(i.toLong, "x"), 1L))
    val refused = intercept[ArrangementTooLarge](orders.load(many, 1))
    assert(refused.limitBytes == 1 << 20)
    assert(budget.used == 0)
    orders.load(Iterator((key(1L), row(1L, "x"), 1L)), 1)
    assert(found(orders, 1, 2) == Seq((1, 1, 1)))
    orders.close()
    assert(budget.used == 0 && budget.reserved == 0)
  }

  test("readers see whole batches while a writer appends, compacts and maintains") {
    val keys = 500L
    val orders = arrangement(shape = Shape(segmentRows = 64, foldRows = 8))
    // At time t, the key k has one row, whose value is the last time up to t at which it changed.
    def changes(k: Long, time: Long): Boolean = (k + time) % 7 == 0
    def value(k: Long, time: Long): Long = (time to 1 by -1).find(t => t == 1 || changes(k, t)).get
    orders.load((0 until keys.toInt).iterator.map(k => (key(k.toLong), row(1L, "x"), 1L)), 1)

    val done = new AtomicBoolean
    val threads = Executors.newFixedThreadPool(3)
    def reader(seed: Int): Callable[Long] = () => {
      val mine = new Rows(LongType)
      val random = new scala.util.Random(seed)
      var read = 0L
      while (!done.get || read < 1000) {
        val below = orders.upper
        val sums = mutable.Map.empty[(Long, Long), Long].withDefaultValue(0)
        def add(k: Long, value: Long, diff: Long): Unit = sums((k, value)) += diff
        val wanted = random.nextInt(keys.toInt).toLong
        val all = random.nextInt(50) == 0
        val known =
          try {
            if (all)
              orders.scan(below, (k, row, _, diff) => add(k.getLong(0), row.getLong(0), diff))
            else
              orders.lookup(
                mine(wanted),
                below,
                (row, _, diff) => add(wanted, row.getLong(0), diff)
              )
            true
          } catch {
            // The writer was faster by more than it leaves.
            case _: IllegalArgumentException => false
          }
        if (known) {
          read += 1
          val expected =
            (if (all) 0L until keys else Seq(wanted)).map(k => (k, value(k, below - 1)) -> 1L)
          assert(sums.filter(_._2 != 0).toMap == expected.toMap)
        }
      }
      read
    }
    try {
      val readers = (1 to 3).map(i => threads.submit(reader(i)))
      for (time <- 2L to 2000L) {
        val batch = new Batch
        for (k <- 0L until keys if changes(k, time)) {
          batch.add(key(k), row(value(k, time - 1), "x"), time, -1)
          batch.add(key(k), row(time, "x"), time, 1)
        }
        orders.append(batch, time + 1)
        orders.allowCompaction(time - 20)
        orders.maintain(300)
      }
      done.set(true)
      assert(readers.forall(_.get(60, TimeUnit.SECONDS) >= 1000))
    } finally {
      done.set(true)
      threads.shutdownNow()
      threads.awaitTermination(60, TimeUnit.SECONDS)
      orders.close()
    }
  }
}
