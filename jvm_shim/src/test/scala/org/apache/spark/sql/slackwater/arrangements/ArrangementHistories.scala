package org.apache.spark.sql.slackwater.arrangements

import java.nio.file.Files

import scala.collection.mutable.ArrayBuffer

import org.scalacheck.Gen
import org.scalatest.funsuite.AnyFunSuite
import org.scalatestplus.scalacheck.ScalaCheckPropertyChecks

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.types._
import org.apache.spark.util.Utils

/** Random histories, compared with [[Model]]: after each step, and at the end at every time that can be
  * asked for.
  */
final class ArrangementHistories extends AnyFunSuite with ScalaCheckPropertyChecks {
  import ArrangementHistories._

  implicit override val generatorDrivenConfig: PropertyCheckConfiguration =
    PropertyCheckConfiguration(minSuccessful = 150, sizeRange = 30)

  for (kind <- kinds)
    test(s"${kind.name}: an arrangement is what was appended to it") {
      forAll(shapes, Gen.option(contents), Gen.listOf(steps)) { (shape, initial, history) =>
        val budget = new MemoryBudget(Long.MaxValue)
        val run = new Run(kind, shape, budget)
        initial.foreach(run.load(_, 7))
        history.foreach(run.step)
        run.closed()
      }
    }

  test("what does not fit is refused, and changes nothing") {
    var refusals = 0
    forAll(shapes, Gen.option(contents), Gen.listOf(steps), Gen.choose(1, 20)) {
      (shape, initial, history, pages) =>
        val run = new Run(kinds.head, shape, new MemoryBudget(pages * Slabs.PageBytes))
        initial.foreach(run.load(_, 7))
        history.foreach(run.step)
        run.closed()
        refusals += run.refusals
    }
    assert(refusals > 20)
  }

  test("what does not fit into memory is in files, and is read like all else") {
    val folder = Files.createTempDirectory("slackwater")
    var spilled = 0
    forAll(shapes, Gen.option(contents), Gen.listOf(steps), Gen.choose(0, 3)) {
      (shape, initial, history, pages) =>
        val files = Some(Spill(Long.MaxValue, folder))
        val budget = new MemoryBudget(pages * Slabs.PageBytes, files)
        val run = new Run(kinds.head, shape, budget)
        initial.foreach(run.load(_, 7))
        history.foreach(run.step)
        if (budget.spilled > 0) spilled += 1
        run.closed()
        assert(run.refusals == 0)
    }
    assert(spilled > 20)
    Utils.deleteRecursively(folder.toFile)
  }
}

object ArrangementHistories {

  /** An update by the numbers of its key and its row; `after` is how long after the last upper. */
  final case class Change(key: Int, row: Int, after: Int, diff: Int)

  sealed trait Step
  final case class Append(changes: List[Change], width: Int) extends Step
  final case class Compact(lag: Int) extends Step
  final case class Maintain(rows: Int) extends Step

  final case class Kind(
      name: String,
      keys: Rows,
      key: Int => UnsafeRow,
      rows: Rows,
      row: Int => UnsafeRow
  )

  private val longText = "long " * 60

  private def text(i: Int): String = i % 4 match {
    case 0 => null
    case 1 => ""
    case 2 => s"text $i"
    case 3 => longText + i
  }

  private def orNull(i: Int, value: Any): Any = if (i % 5 == 0) null else value

  private val wide = new Rows(
    StringType,
    IntegerType,
    DoubleType,
    DecimalType(38, 2),
    StringType,
    StructType(Seq(StructField("a", LongType), StructField("b", StringType)))
  )

  private def wideRow(i: Int): UnsafeRow = wide(
    text(i),
    orNull(i, i * 7919),
    orNull(i + 1, i / 3.0),
    orNull(i + 2, Decimal(BigDecimal(i) * BigDecimal("123456789012345678901234.5"))),
    text(i / 4),
    orNull(i + 3, Seq[Any](Long.MinValue + i, text(i / 2)))
  )

  private val numbers = new Rows(LongType, LongType, IntegerType)
  private def numbersRow(i: Int): UnsafeRow =
    numbers(if (i % 2 == 0) Long.MaxValue - i else Long.MinValue + i, 1000L + i, i)

  private val long = new Rows(LongType)
  private val pair = new Rows(StringType, LongType)
  private val none = new Rows()

  val kinds: Seq[Kind] = Seq(
    Kind("numbers", long, i => long(i.toLong * 1000003), numbers, numbersRow),
    Kind("NULLs, strings, structs", pair, i => pair(text(i), orNull(i, i.toLong)), wide, wideRow),
    Kind("one key of no fields", none, _ => none(), wide, wideRow),
    Kind("rows of no fields", pair, i => pair(text(i), orNull(i, i.toLong)), none, _ => none())
  )

  val shapes: Gen[Shape] = for {
    rows <- Gen.oneOf(1, 4, 32, 1 << 15)
    share <- Gen.oneOf(0.0, 1.0 / 8)
    least <- Gen.oneOf(0, 8)
    bits <- Gen.oneOf(0, 1, 3, 32)
  } yield Shape(rows, share, least, bits)

  // Some keys are hot, and most rows meet again.
  private val keyNumbers =
    Gen.frequency(3 -> Gen.const(3), 2 -> Gen.choose(0, 5), 5 -> Gen.choose(0, 40))
  private val diffs = Gen.frequency(4 -> Gen.const(1), 4 -> Gen.const(-1), 2 -> Gen.choose(-3, 3))

  private val changes: Gen[Change] = for {
    key <- keyNumbers
    row <- Gen.choose(0, 12)
    after <- Gen.choose(0, 4)
    diff <- diffs
  } yield Change(key, row, after, diff)

  /** One key with very many rows now and then. */
  private val flood: Gen[List[Change]] = for {
    key <- keyNumbers
    count <- Gen.choose(200, 700)
    diff <- diffs
    after <- Gen.choose(0, 4)
  } yield List.tabulate(count)(i => Change(key, i, after, diff))

  val contents: Gen[List[Change]] =
    Gen.frequency(5 -> Gen.listOf(changes), 1 -> Gen.listOfN(300, changes), 1 -> flood)

  val steps: Gen[Step] = Gen.frequency(
    10 -> Gen.zip(contents, Gen.choose(1, 5)).map { case (list, width) => Append(list, width) },
    4 -> Gen.choose(0, 6).map(Compact(_)),
    3 -> Gen.choose(0, 100).map(Maintain(_)),
    2 -> Gen.const(Maintain(Int.MaxValue))
  )

  /** An arrangement beside its model. */
  final class Run(kind: Kind, shape: Shape, budget: MemoryBudget) {
    private val arrangement =
      new Arrangement(kind.keys.fields, kind.rows.fields, budget, "orders by customer", shape)
    private val model = new Model
    var refusals = 0

    /** In no order, or in that of some bits of the hashes of keys. */
    def load(changes: List[Change], asOf: Long): Unit = {
      val bits = changes.size % 7
      val rows = changes.map(c => (kind.key(c.key).copy(), kind.row(c.row).copy(), c.diff.toLong))
      val ordered =
        if (bits == 0) rows
        else rows.sortBy { case (key, _, _) => Arrangement.hash(key) >>> (32 - bits) }
      if (fits(arrangement.load(ordered.iterator, asOf, bits))) {
        model.since = asOf
        model.add(entries(changes, _ => asOf), asOf + 1)
      }
      compare()
    }

    def step(step: Step): Unit = {
      step match {
        case Append(changes, width) =>
          val newUpper = model.upper + width
          def time(change: Change): Long = model.upper + change.after % width
          val batch = new Batch
          for (change <- changes)
            batch.add(kind.key(change.key), kind.row(change.row), time(change), change.diff)
          val more = entries(changes, time)
          if (fits(arrangement.append(batch, newUpper))) model.add(more, newUpper)
        case Compact(lag) =>
          val since = model.upper - 1 - lag
          arrangement.allowCompaction(since)
          model.since = math.max(model.since, since)
        case Maintain(rows) =>
          var more = true
          if (fits { more = arrangement.maintain(rows) }) assert(!more || rows < Int.MaxValue)
      }
      compare()
    }

    private def fits(body: => Unit): Boolean =
      try {
        body
        true
      } catch {
        case refused: ArrangementTooLarge =>
          assert(refused.owner == "orders by customer")
          assert(refused.wantedBytes > refused.limitBytes - refused.usedBytes)
          refusals += 1
          false
      }

    private def entries(changes: List[Change], time: Change => Long): Seq[Model.Entry] =
      changes.map(c =>
        Model.Entry(
          Rows.bytes(kind.key(c.key)),
          Rows.bytes(kind.row(c.row)),
          time(c),
          c.diff.toLong
        )
      )

    private def compare(): Unit = {
      assert(arrangement.since == model.since)
      assert(arrangement.upper == model.upper)
      assert(arrangement.bytes == budget.used + budget.spilled)
      if (model.upper > model.since) {
        compareAt((model.since + model.upper) / 2 + 1)
        for (key <- Seq(0, 3, 17, 99)) compareKey(key, model.upper)
      }
    }

    private def compareAt(below: Long): Unit = {
      val found = ArrayBuffer.empty[Model.Entry]
      arrangement.scan(
        below,
        (key, row, time, diff) => found += Model.Entry(Rows.bytes(key), Rows.bytes(row), time, diff)
      )
      check(found, model.before(below))
    }

    private def compareKey(number: Int, below: Long): Unit = {
      val key = Rows.bytes(kind.key(number))
      val found = ArrayBuffer.empty[Model.Entry]
      arrangement.lookup(
        kind.key(number),
        below,
        (row, time, diff) => found += Model.Entry(key, Rows.bytes(row), time, diff)
      )
      val expected = model.before(below, key)
      check(found, expected)
      val counts = ArrayBuffer.empty[(Long, Long)]
      arrangement.count(kind.key(number), below, (time, diff) => counts += ((time, diff)))
      assert(sumOf(counts) == sumOf(expected.toSeq.map { case ((_, _, time), n) => (time, n) }))
      assert(counts.count(_._1 == model.since) <= 1)
    }

    private def sumOf(counts: Iterable[(Long, Long)]): Map[Long, Long] =
      counts.groupMapReduce(_._1)(_._2)(_ + _).filter(_._2 != 0)

    private def check(
        found: ArrayBuffer[Model.Entry],
        expected: Map[(Rows.Bytes, Rows.Bytes, Long), Long]
    ): Unit = {
      assert(Model.consolidated(found.toSeq) == expected)
      val history = found.filter(_.time == model.since)
      assert(history.distinctBy(e => (e.key, e.row)).size == history.size)
      assert(history.forall(_.diff != 0))
    }

    def closed(): Unit = {
      for (below <- model.since + 1 to model.upper) compareAt(below)
      arrangement.close()
      arrangement.close()
      assert(arrangement.bytes == 0)
      assert(budget.used == 0 && budget.spilled == 0)
      assert(budget.reserved == 0)
    }
  }
}
