package org.apache.spark.sql.slackwater.arrangements

import java.lang.management.ManagementFactory
import java.nio.file.Path

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/** The figures of docs/internals/arrangements.md: lines of orders by order, 6 million of them unless
  * the first argument says otherwise. With a folder as the second one, all is in files there. All is
  * done by one thread; times are its CPU's, so that they say the same on a busy machine.
  */
object Bench {
  private val Batches = 1000
  private val Retractions = 500
  private val TickRows = 64 << 10

  def main(arguments: Array[String]): Unit = {
    val rows = arguments.headOption.fold(6000000)(_.toInt)
    val orders = new Orders(rows / 4)
    val budget = arguments.lift(1) match {
      case Some(folder) => new MemoryBudget(0, Some(Spill(Long.MaxValue, Path.of(folder))))
      case None         => new MemoryBudget(Long.MaxValue)
    }
    loaded(budget, orders, 0).close()
    val lines = loaded(budget, orders, 6)
    lookups("loaded", lines, orders)
    scan(lines)

    val before = lines.rows
    val appended, maintained = new Array[Double](Batches)
    for (i <- 0 until Batches) {
      val batch = orders.changes(i * Retractions, Retractions, i + 1L)
      appended(i) = seconds(lines.append(batch, i + 2L))
      maintained(i) = seconds(lines.maintain(TickRows))
    }
    println(s"$Batches batches of ${2 * Retractions}: append ${millis(appended)}")
    println(s"  maintain ${millis(maintained)}")
    println(f"  ${lines.rows}%d rows, ${perRow(lines)}%.1f bytes a row")
    lookups("appended", lines, orders)

    lines.allowCompaction(Batches)
    lookups("since has advanced", lines, orders)
    var steps = 0
    var longest = 0.0
    val compaction = seconds {
      var more = true
      while (more) {
        longest = math.max(longest, seconds { more = lines.maintain(TickRows) })
        steps += 1
      }
    }
    println(
      f"maintain until nothing is due: $compaction%.2f s in $steps%d steps, at most " +
        f"${longest * 1000}%.1f ms; ${lines.rows}%d rows of $before%d, ${perRow(lines)}%.1f bytes a row"
    )
    lookups("maintained", lines, orders)
    scan(lines)

    val ticks = new Array[Double](Batches)
    for (i <- 0 until Batches) {
      val time = Batches + i + 1L
      val batch = orders.changes(i * Retractions, Retractions, time)
      ticks(i) = seconds {
        lines.append(batch, time + 1)
        lines.allowCompaction(time)
        lines.maintain(TickRows)
      }
    }
    println(s"$Batches ticks whose since follows: ${millis(ticks)}")
    println(f"  ${lines.rows}%d rows, ${perRow(lines)}%.1f bytes a row")
    lookups("ticked", lines, orders)
    lines.close()
    println(s"closed: ${lines.bytes} bytes in use, ${budget.reserved} in slabs")
  }

  private def loaded(budget: MemoryBudget, orders: Orders, rangeBits: Int): Arrangement = {
    val lines = new Arrangement(1, 5, budget, "lines by order")
    var peak = 0L
    val loading = orders.lines(rangeBits).map { line =>
      peak = math.max(peak, budget.used + budget.spilled)
      line
    }
    val load = seconds(lines.load(loading, 0, rangeBits))
    println(
      f"load ${lines.rows}%d rows, in the order of $rangeBits bits: $load%.1f s; " +
        f"${perRow(lines)}%.1f bytes a row, at most ${peak.toDouble / lines.rows}%.1f"
    )
    lines
  }

  private def lookups(when: String, lines: Arrangement, orders: Orders): Unit = {
    val rounds = 300
    val keys = 1000
    val random = new java.util.Random(3)
    val times = new Array[Double](rounds)
    var found = 0L
    var check = 0L
    val sink: Sink = (row, time, diff) => {
      found += 1
      check += row.getLong(1) * diff + time
    }
    for (i <- 0 until rounds) {
      val wanted = Array.fill(keys)(orders.ofRandomLine(random))
      times(i) = seconds {
        var k = 0
        while (k < keys) {
          lines.lookup(orders.key(wanted(k)), Long.MaxValue, sink)
          k += 1
        }
      } / keys
    }
    java.util.Arrays.sort(times)
    println(
      f"  lookup, $when%s: median ${times(rounds / 2) * 1e6}%.2f us, 90 %% " +
        f"${times(rounds * 9 / 10) * 1e6}%.2f; ${found.toDouble / rounds / keys}%.1f updates a key"
    )
  }

  private def scan(lines: Arrangement): Unit = {
    var check = 0L
    val sink: KeyedSink = (_, row, _, diff) => check += row.getLong(1) * diff
    lines.scan(Long.MaxValue, sink)
    val time = seconds(lines.scan(Long.MaxValue, sink))
    println(f"  scan: ${lines.rows / time / 1e6}%.0f million rows a second")
  }

  private def perRow(lines: Arrangement): Double = lines.bytes.toDouble / lines.rows

  private def millis(seconds: Array[Double]): String = {
    val sorted = seconds.sorted
    f"mean ${sorted.sum / sorted.length * 1000}%.2f ms, median ${sorted(sorted.length / 2) * 1000}%.2f, " +
      f"99 %% ${sorted(sorted.length * 99 / 100) * 1000}%.2f, at most ${sorted.last * 1000}%.1f"
  }

  private val threads = ManagementFactory.getThreadMXBean

  private def seconds(body: => Unit): Double = {
    val start = threads.getCurrentThreadCpuTime
    body
    (threads.getCurrentThreadCpuTime - start) / 1e9
  }
}

/** Orders of one to seven lines, in the form of TPC-H: sparse keys; supplier, price, discount, day of
  * shipment, quantity. All follow from the number of the order.
  */
private final class Orders(count: Int) {
  private val keyRow = fixedRow(1)
  private val row = fixedRow(5)

  private def fixedRow(fields: Int): UnsafeRow = {
    val row = new UnsafeRow(fields)
    row.pointTo(new Array[Byte](8 + 8 * fields), 8 + 8 * fields)
    row
  }

  private def mixed(i: Long): Long = {
    val a = (i ^ i >>> 30) * 0xbf58476d1ce4e5b9L
    val b = (a ^ a >>> 27) * 0x94d049bb133111ebL
    b ^ b >>> 31
  }

  private def linesOf(order: Int): Int = 1 + math.floorMod(mixed(order + 1L), 7).toInt

  def key(order: Int): UnsafeRow = {
    keyRow.setLong(0, order / 8 * 32L + order % 8 + 1)
    keyRow
  }

  private def line(order: Int, i: Int, version: Long): UnsafeRow = {
    val bits = mixed(order * 8L + i)
    val quantity = 1 + (bits >>> 40) % 50
    row.setLong(0, 1 + (bits >>> 1) % 10000)
    row.setLong(1, quantity * (90000 + (bits >>> 20) % 110000))
    row.setLong(2, (bits >>> 50) % 11)
    row.setInt(
      3,
      8036 + math.floorMod(mixed(order + 7L) >>> 3, 2500L).toInt + (bits >>> 13).toInt % 60
    )
    row.setLong(4, quantity * 100 + version)
    row
  }

  /** In the order of so many first bits of the hashes of their keys. */
  def lines(rangeBits: Int): Iterator[(UnsafeRow, UnsafeRow, Long)] = {
    def range(order: Int): Int = if (rangeBits == 0) 0 else hash(order) >>> (32 - rangeBits)
    def hash(order: Int): Int = Arrangement.hash(key(order))
    val ordered = (0 until count).toArray.sortBy(range)
    ordered.iterator
      .flatMap(order => Iterator.range(0, linesOf(order)).map((key(order), _, order)))
      .map { case (key, i, order) => (key, line(order, i, 0), 1L) }
  }

  /** Retracts the first line of so many orders as it is at `time - 1`, and inserts its next version.
    *
    * The numbers `from` until `from + many` stand for orders that are far from each other.
    */
  def changes(from: Int, many: Int, time: Long): Batch = {
    val batch = new Batch
    for (i <- from until from + many) {
      val order = (i.toLong * 514229 % count).toInt
      val version = versions.getOrElse(order, 0)
      batch.add(key(order), line(order, 0, version), time, -1)
      batch.add(key(order), line(order, 0, version + 1L), time, 1)
      versions(order) = version + 1
    }
    batch
  }

  private val versions = scala.collection.mutable.HashMap.empty[Int, Int]

  /** The order of a line, each line with equal chance. */
  def ofRandomLine(random: java.util.Random): Int = {
    var order = random.nextInt(count)
    while (random.nextInt(7) >= linesOf(order)) order = random.nextInt(count)
    order
  }
}
