package org.apache.spark.sql.slackwater.programs

import java.util.concurrent.{
  Callable,
  CountDownLatch,
  ExecutionException,
  ExecutorService,
  Executors,
  Future,
  TimeUnit
}

import scala.collection.mutable
import scala.util.Random

import org.scalatest.BeforeAndAfterEach
import org.scalatest.funsuite.AnyFunSuite

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation
import org.apache.spark.sql.slackwater.arrangements.{
  Arrangement,
  ArrangementTooLarge,
  Batch,
  MemoryBudget
}
import org.apache.spark.sql.types.{LongType, StructType}

final class ArrangementsSpec extends AnyFunSuite with BeforeAndAfterEach {
  private val columns = new StructType().add("k", LongType)
  private val identity =
    ArrangementIdentity("here", Map.empty, OneRowRelation(), Nil, Nil, Nil, None)
  private var threads: ExecutorService = _

  override protected def beforeEach(): Unit = threads = Executors.newCachedThreadPool()
  override protected def afterEach(): Unit = { val _ = threads.shutdownNow() }

  private def row(value: Long): UnsafeRow =
    UnsafeProjection.create(columns)(InternalRow(value)).copy()

  private type Rows = Iterator[(UnsafeRow, UnsafeRow, Long)]

  private def rows(count: Int): Rows =
    (0L until count.toLong).iterator.map(i => (row(i), row(i), 1L))

  private final class Shared(limitBytes: Long = Long.MaxValue) {
    val budget = new MemoryBudget(limitBytes)
    val all = new Arrangements(budget, budget)

    def reader(name: String, asOf: Long)(found: () => Rows): ArrangementReader =
      new ArrangementReader(
        all,
        all.register(identity, name, asOf),
        () => new Arrangement(1, 1, budget, name),
        _ => Contents.of(found())
      )

    def readers: Seq[Seq[String]] = {
      all.validate()
      all.sizes("here").map(_.readers)
    }
  }

  private def background[A](body: => A): Future[A] =
    threads.submit(new Callable[A] { override def call(): A = body })

  private def ended[A](future: Future[A]): A = future.get(60, TimeUnit.SECONDS)

  private def fill(reader: ArrangementReader, asOf: Long): Unit = reader.fill(null, null, asOf)

  /** Rows that come when the latch is open, in a thread that says when it waits. */
  private final class Slow(count: Int) {
    val began = new CountDownLatch(1)
    val mayGoOn = new CountDownLatch(1)
    @volatile var thread: Thread = _

    def found(): Rows = {
      thread = Thread.currentThread
      began.countDown()
      mayGoOn.await()
      rows(count)
    }
  }

  private def waitUntil(condition: => Boolean): Unit = {
    val end = System.nanoTime() + TimeUnit.MINUTES.toNanos(1)
    while (!condition) {
      assert(System.nanoTime() - end < 0)
      Thread.`yield`()
    }
  }

  test("readers that begin later wait for the earliest, and are told that they are behind") {
    val shared = new Shared
    val late = shared.reader("late", 9)(() => fail("the earliest loads"))
    val early = shared.reader("early", 4)(() => rows(3))
    val waits = background(fill(late, 9))
    fill(early, 4)
    ended(waits)
    assert(late.upper == 5 && shared.readers == Seq(Seq("early", "late")))
    late.reached(10)
    assert(early.upper == 10 && early.rows == 3)
    Seq(early, late).foreach(_.close())
    assert(shared.readers.isEmpty && shared.budget.used == 0)
  }

  test("while one loads, others come and go") {
    val shared = new Shared
    val slow = new Slow(3)
    val loader = shared.reader("loader", 4)(() => slow.found())
    val loads = background(fill(loader, 4))
    slow.began.await()
    val others = (4L to 8L).map(asOf => shared.reader(s"other $asOf", asOf)(() => fail("no")))
    others.foreach(_.close())
    assert(shared.readers.isEmpty)
    slow.mayGoOn.countDown()
    ended(loads)
    loader.close()
    assert(shared.budget.used == 0)
  }

  test("if the loader ends, one of those that wait loads") {
    val shared = new Shared
    val slow = new Slow(3)
    val loader = shared.reader("loader", 4)(() => slow.found())
    val made = mutable.ArrayBuffer.empty[String]
    def waiting(name: String): ArrangementReader = shared.reader(name, 4) { () =>
      made.synchronized(made += name)
      rows(2)
    }
    val (one, two) = (waiting("one"), waiting("two"))
    val loads = background(fill(loader, 4))
    slow.began.await()
    val fills = Seq(one, two).map(each => background(fill(each, 4)))
    slow.thread.interrupt()
    assert(intercept[ExecutionException](ended(loads)).getCause.isInstanceOf[InterruptedException])
    fills.foreach(ended(_))
    assert(made.size == 1)
    loader.close()
    assert(shared.readers == Seq(Seq("one", "two")) && one.rows == 2 && two.rows == 2)
    Seq(one, two).foreach(_.close())
    assert(shared.budget.used == 0)
  }

  test("who waits ends as its thread is interrupted, or as its program is closed") {
    val shared = new Shared
    val slow = new Slow(3)
    val loader = shared.reader("loader", 4)(() => slow.found())
    val loads = background(fill(loader, 4))
    slow.began.await()
    @volatile var thread: Thread = null
    val interrupted, cancelled = shared.reader("waits", 4)(() => fail("no"))
    val first = background {
      thread = Thread.currentThread
      fill(interrupted, 4)
    }
    val second = background(fill(cancelled, 4))
    waitUntil(thread != null && thread.getState == Thread.State.WAITING)
    thread.interrupt()
    assert(intercept[ExecutionException](ended(first)).getCause.isInstanceOf[InterruptedException])
    cancelled.cancel()
    assert(intercept[ExecutionException](ended(second)).getCause.getMessage.contains("closed"))
    Seq(interrupted, cancelled).foreach(_.close())
    slow.mayGoOn.countDown()
    ended(loads)
    loader.close()
    assert(shared.budget.used == 0)
  }

  test("a load ends between rows, too, and gives back what it took") {
    val shared = new Shared
    val slow = new Slow(1000000)
    val loader = shared.reader("loader", 4)(() => slow.found())
    val loads = background(fill(loader, 4))
    slow.began.await()
    loader.cancel()
    slow.mayGoOn.countDown()
    assert(intercept[ExecutionException](ended(loads)).getCause.getMessage.contains("closed"))
    assert(shared.budget.used == 0)
    loader.close()
    assert(shared.readers.isEmpty)
  }

  test("who has no memory to load leaves it to others") {
    val shared = new Shared(64 << 10)
    val large = shared.reader("large", 4)(() => rows(100000))
    val small = shared.reader("small", 4)(() => rows(3))
    assertThrows[ArrangementTooLarge](fill(large, 4))
    assert(shared.budget.used == 0)
    fill(small, 4)
    assert(shared.readers == Seq(Seq("large", "small")))
    Seq(large, small).foreach(_.close())
    assert(shared.budget.used == 0)
  }

  test("no memory to tidy up refuses nothing: the updates are there already") {
    val shared = new Shared(8 << 20)
    val reader = shared.reader("grown", 4)(() => rows(20000))
    fill(reader, 4)
    val batch = new Batch
    (0L until 5000L).foreach(i => batch.add(row(20000 + i), row(i), 5, 1L))
    reader.advance(newTick(5, 6))(_ => batch)
    val others = mutable.ArrayBuffer(new Arrangement(1, 1, shared.budget, "other"))
    while (takesAll(others.last)) others += new Arrangement(1, 1, shared.budget, "other")
    def bytes: Long = shared.all.sizes("here").map(_.bytes).sum
    val grown = bytes
    reader.committed(6)
    assert(reader.rows == 25000 && bytes == grown)
    others.foreach(_.close())
    reader.committed(6)
    assert(reader.rows == 25000 && bytes < grown)
    reader.close()
    assert(shared.budget.used == 0)
  }

  test("threads that come and go at random times find what they look up") {
    val shared = new Shared
    val runs = (1 to 6).map(seed => background(comeAndGo(shared, new Random(seed), 150)))
    runs.foreach(ended(_))
    assert(shared.readers.isEmpty && shared.budget.used == 0)
  }

  /** The collection has the row i from time i on. */
  private def comeAndGo(shared: Shared, random: Random, times: Int): Unit =
    (1 to times).foreach { _ =>
      val asOf = random.nextInt(30).toLong
      val fails = random.nextInt(5) == 0
      val reader = shared.reader("some", asOf) { () =>
        if (fails) throw new NoSuchElementException("no storage")
        (0L to asOf).iterator.map(i => (row(0), row(i), 1L))
      }
      try {
        fill(reader, asOf)
        while (reader.upper <= asOf && random.nextInt(3) == 0) {
          reader.renew()
          fill(reader, asOf)
        }
        var lower = asOf + 1
        follow(reader, 0, lower)
        found(reader, lower)
        (1 to random.nextInt(4)).foreach { _ =>
          val upper = lower + 1 + random.nextInt(3)
          follow(reader, lower, upper)
          found(reader, lower)
          found(reader, upper)
          lower = upper
          if (random.nextBoolean()) reader.committed(upper - random.nextInt(2))
          if (random.nextInt(3) == 0) reader.advanced(lower)
          found(reader, lower)
        }
      } catch { case _: NoSuchElementException => }
      finally reader.close()
    }

  private def follow(reader: ArrangementReader, lower: Long, upper: Long): Unit =
    reader.advance(newTick(lower, upper)) { from =>
      val batch = new Batch
      (math.max(from, lower) until upper).foreach(i => batch.add(row(0), row(i), i, 1L))
      batch
    }

  private def found(reader: ArrangementReader, below: Long): Unit = {
    val rows = mutable.ArrayBuffer.empty[Long]
    reader.lookup(row(0), below, (row, _, diff) => { assert(diff == 1); rows += row.getLong(0) })
    assert(rows.sorted == (0L until below))
  }

  private def newTick(lower: Long, upper: Long): TickContext =
    new TickContext(lower, upper, 1, _ => Updates.none, TickBudget.unlimited, None)

  /** Appends rows for as long as there is memory; whether there was any. */
  private def takesAll(arrangement: Arrangement): Boolean = {
    def append(rows: Long): Boolean = {
      val (batch, upper) = (new Batch, arrangement.upper)
      (0L until rows).foreach(i => batch.add(row(upper * rows + i), row(i), upper, 1L))
      try {
        arrangement.append(batch, upper + 1)
        true
      } catch { case _: ArrangementTooLarge => false }
    }
    Seq(5000L, 100L).foreach(rows => while (append(rows)) {})
    arrangement.rows > 0
  }
}
