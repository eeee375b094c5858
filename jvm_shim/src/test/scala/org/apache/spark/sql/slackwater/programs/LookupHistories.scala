package org.apache.spark.sql.slackwater.programs

import scala.collection.mutable

import org.scalacheck.Gen
import org.scalatest.funsuite.AnyFunSuite
import org.scalatestplus.scalacheck.ScalaCheckPropertyChecks

import org.apache.spark.sql.catalyst.expressions.{
  BoundReference,
  Expression,
  GreaterThanOrEqual,
  Literal,
  UnsafeRow
}
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation
import org.apache.spark.sql.slackwater.arrangements.{
  Arrangement,
  ArrangementTooLarge,
  MemoryBudget,
  Rows
}
import org.apache.spark.sql.slackwater.programs.{Step => ProgramStep}
import org.apache.spark.sql.types.{IntegerType, StructType}

/** Random histories of programs that look up in what an index has, beside those that have their own:
  * each sees the rows of its times alone, and what is kept is kept once, as long as one of them is
  * there.
  */
final class LookupHistories extends AnyFunSuite with ScalaCheckPropertyChecks {
  import LookupHistories._

  implicit override val generatorDrivenConfig: PropertyCheckConfiguration =
    PropertyCheckConfiguration(minSuccessful = 400, sizeRange = 120)

  test("programs over an index have the rows of their times, with and without memory for it") {
    val seen = mutable.TreeMap.empty[String, Int].withDefaultValue(0)
    forAll(Gen.listOf(steps)) { history =>
      val run = new Run
      history.foreach(run.step)
      run.finish()
      run.seen.foreach(each => seen(each) += 1)
    }
    all.foreach(each => assert(seen(each) > 20, s"$each in $seen"))
  }
}

object LookupHistories {
  sealed trait Step

  /** `key` 0 is NULL; `later`: at a time of its own. */
  final case class Write(toTable: Boolean, key: Int, v: Int, w: Int, diff: Int, later: Boolean)
      extends Step
  final case class Open(kind: Kind, back: Int, canFollow: Boolean) extends Step
  final case class Tick(which: Int, width: Int, commits: Boolean) extends Step
  final case class Ask(which: Int, key: Int, back: Int) extends Step
  final case class Close(which: Int) extends Step

  /** So much memory is left, in pages; None: as much as anybody wants. */
  final case class Left(pages: Option[Int]) extends Step

  sealed trait Kind

  /** An index on the table `t (k, v, w)` by `k`. */
  case object OfIndex extends Kind

  /** `SELECT t.k, t.v FROM p JOIN t ON p.k = t.k WHERE t.v >= bound`, or, if it is `counted`, `SELECT
    * k, NULL FROM p WHERE EXISTS (..)` of the same rows of `t`; `serves`: in the index.
    */
  final case class OfView(bound: Int, counted: Boolean, serves: Boolean) extends Kind

  private val which = Gen.choose(0, 40)
  private val keys = Gen.frequency(1 -> 0, 12 -> Gen.choose(1, 3), 1 -> Gen.choose(4, 200))
  private val bounds = Gen.choose(0, 3)

  val steps: Gen[Step] = Gen.frequency(
    16 -> (for {
      toTable <- Gen.oneOf(true, false)
      key <- keys
      v <- Gen.choose(0, 4)
      w <- Gen.choose(0, 1)
      diff <- Gen.oneOf(1, 1, -1)
      later <- Gen.oneOf(true, false)
    } yield Write(toTable, key, v, w, diff, later)),
    4 -> (for {
      kind <- Gen.frequency(
        2 -> Gen.const(OfIndex),
        4 -> Gen.zip(bounds, Gen.oneOf(true, false)).map { case (b, c) =>
          OfView(b, c, serves = true)
        },
        1 -> Gen.zip(bounds, Gen.oneOf(true, false)).map { case (b, c) =>
          OfView(b, c, serves = false)
        }
      )
      back <- Gen.choose(0, 4)
      canFollow <- Gen.frequency(3 -> true, 1 -> false)
    } yield Open(kind, back, canFollow)),
    12 -> Gen.zip(which, Gen.choose(1, 4), Gen.frequency(3 -> true, 1 -> false)).map {
      case (w, width, commits) => Tick(w, width, commits)
    },
    4 -> Gen.zip(which, keys, Gen.choose(0, 4)).map { case (w, k, b) => Ask(w, k, b) },
    2 -> which.map(Close(_)),
    2 -> Gen.frequency(2 -> Gen.choose(0, 3).map(Option(_)), 1 -> Gen.const(None)).map(Left(_))
  )

  /** What has to happen in some histories. */
  val all: Seq[String] = Seq(
    "a view looks up in the index",
    "the index is dropped while a view looks up in it",
    "a lookup passes over rows",
    "an arrangement is ahead of a tick",
    "no room to load",
    "no room for a tick",
    "alone without room for the index",
    "alone as it would pass over many",
    "brought forward",
    "loaded anew",
    "asked"
  )

  /** More rows of a key, on average, than a view looks at that filters them. */
  private val Many = 2

  private type Pairs = Map[Seq[Option[Int]], Long]
  private final case class Update(values: Seq[Option[Int]], time: Long, diff: Long)

  private def row(values: Seq[Option[Int]]): UnsafeRow =
    makers(values.size)(values.map(_.map(Int.box).orNull): _*).copy()

  private val makers = (0 to 3).map(n => new Rows(Seq.fill(n)(IntegerType): _*))

  private def column(i: Int): Expression = BoundReference(i, IntegerType, nullable = true)
  private val nothing: Expression = Literal(null, IntegerType)
  private def columns(numbers: Int*): Evaluation = new Evaluation(numbers.map(column))
  private def atLeast(bound: Int, i: Int): Condition =
    new Condition(GreaterThanOrEqual(column(i), Literal(bound)))

  private def valuesOf(row: UnsafeRow): Seq[Option[Int]] =
    (0 until row.numFields).map(i => Option.when(!row.isNullAt(i))(row.getInt(i)))

  final class Run {
    private val budget = new MemoryBudget(Long.MaxValue)
    private val arrangements = new Arrangements(budget, budget)
    private val table = mutable.ArrayBuffer.empty[Update]
    private val probes = mutable.ArrayBuffer.empty[Update]
    private val open = mutable.LinkedHashMap.empty[String, Opened]

    // Both collections are complete before it.
    private var now = 1L
    private var opened = 0
    val seen = mutable.Set.empty[String]

    /** `reached`: its output is `output` just before it. */
    private final class Opened(
        val kind: Kind,
        val program: Program,
        val reader: ArrangementReader,
        var reached: Long,
        var output: Pairs
    )

    private def pick(which: Int): Option[(String, Opened)] =
      Option.when(open.nonEmpty)(open.toSeq(which % open.size))

    def step(step: Step): Unit = {
      step match {
        case Write(toTable, key, v, w, diff, later) =>
          if (later) now += 1
          val k = Option.when(key > 0)(key)
          // What is written now is complete with the time after it.
          if (toTable) table += Update(Seq(k, Some(v), Some(w)), now, diff)
          else probes += Update(Seq(k), now, diff)
          now += 1
        case Open(kind, back, canFollow) => begin(kind, math.max(0, now - 1 - back), canFollow)
        case Tick(which, width, commits) =>
          pick(which).foreach { case (name, each) => tick(name, each, width, commits) }
        case Ask(which, key, back) => pick(which).foreach { case (_, each) => ask(each, key, back) }
        case Close(which)          => pick(which).foreach { case (name, _) => close(name) }
        case Left(pages)           =>
          val limit = pages.fold(Long.MaxValue)(n => budget.used + n * 4096L)
          budget.resize(limit, 0)
      }
      check()
    }

    // The model

    private def sum[A](of: Iterable[(A, Long)]): Map[A, Long] =
      of.groupMapReduce(_._1)(_._2)(_ + _).filter(_._2 != 0)

    private def contents(of: Iterable[Update], at: Long): Map[Seq[Option[Int]], Long] =
      sum(of.filter(_.time <= at).map(each => each.values -> each.diff))

    private def rowsOf(view: OfView, at: Long): Pairs = {
      val probed = contents(probes, at)
      val rows = contents(table, at).toSeq.collect {
        case (Seq(k, v, _), n) if k.isDefined && v.exists(_ >= view.bound) => Seq(k, v) -> n
      }
      if (view.counted) {
        val partners = sum(rows.map { case (Seq(k, _), n) => k -> n; case other => fail(other) })
        sum(probed.toSeq.collect {
          case (Seq(k), n) if partners.getOrElse(k, 0L) > 0 => Seq(k, None) -> n
        })
      } else
        sum(rows.map { case (values, n) => values -> n * probed.getOrElse(values.take(1), 0L) })
    }

    private def fail(what: Any): Nothing = throw new IllegalStateException(what.toString)

    private def updates(of: Iterable[Update], lower: Long, upper: Long): Updates = {
      val made = new Updates
      of.filter(each => lower <= each.time && each.time < upper)
        .foreach(each => made.add(row(each.values), each.time, each.diff))
      made
    }

    // Programs

    /** An arrangement of rows by their first column; `made` makes keys and rows of a table's rows. */
    private def readerOf(name: String, what: String, asOf: Long, fields: Int, nullSafe: Boolean)(
        of: Iterable[Update],
        made: Seq[Option[Int]] => Option[Seq[Option[Int]]]
    ): ArrangementReader = {
      val identity =
        ArrangementIdentity("here", Map.empty, OneRowRelation(), Nil, Nil, Nil, Some(what))
      val found = contents(of, asOf).toSeq.flatMap { case (values, n) =>
        made(values).filter(_ => nullSafe || values.head.isDefined).map((values.head, _, n))
      }
      new ArrangementReader(
        arrangements,
        arrangements.register(identity, name, asOf),
        () => new Arrangement(1, fields, budget, name),
        _ =>
          Contents.of(found.iterator.map { case (key, values, n) =>
            (row(Seq(key)), row(values), n)
          })
      )
    }

    private def indexReader(name: String, asOf: Long): ArrangementReader =
      readerOf(name, "t by k", asOf, 3, nullSafe = true)(table, Some(_))

    private def wholeRows(reader: ArrangementReader, delta: Int, seen: SeenRows): Arranged =
      new Arranged(
        reader,
        delta,
        new Keyed(columns(0), IndexedSeq(true), columns(0, 1, 2)),
        seen
      )

    private def programOf(
        steps: IndexedSeq[Operator],
        arranged: Seq[Arranged],
        ofTable: Arranged
    ): Program = new Program(
      new StructType(),
      Map.empty,
      steps.indices.map(i => ProgramStep("", steps(i), arranged.filter(_.delta == i))),
      arranged.flatMap(_.reader),
      Lookups(Seq(ofTable), _ => Map.empty),
      None,
      Nil
    )

    private def indexProgram(name: String, asOf: Long): (Program, ArrangementReader) = {
      val reader = indexReader(name, asOf)
      val rows = wholeRows(reader, 1, SeenRows.all)
      (programOf(IndexedSeq(new Delta(0), new Delta(1)), Seq(rows), rows), reader)
    }

    private def viewProgram(
        name: String,
        view: OfView,
        asOf: Long
    ): (Program, ArrangementReader) = {
      val reader =
        if (view.serves) indexReader(name, asOf)
        else
          readerOf(name, s"t by k, v >= ${view.bound}", asOf, 1, nullSafe = false)(
            table,
            values => Option.when(values(1).exists(_ >= view.bound))(Seq(values(1)))
          )
      val ofTable =
        if (view.serves) wholeRows(reader, 1, seenBy(view.bound))
        else new Arranged(reader, 3, new Keyed(columns(0), IndexedSeq(false), columns(1)))
      val ofProbes = new Arranged(
        readerOf(name, "p by k", asOf, 0, nullSafe = false)(probes, _ => Some(Nil)),
        0,
        new Keyed(columns(0), IndexedSeq(false), columns())
      )
      val steps = IndexedSeq(
        new Delta(0),
        new Delta(1),
        new MapRows(1, columns(0, 1)),
        new FilterRows(2, atLeast(view.bound, 1)),
        if (view.counted) exists(ofProbes, ofTable)
        else lookup(0, ofTable, old = true, columns(0, 2)),
        if (view.counted) new MapRows(4, new Evaluation(Seq(column(0), nothing)))
        else lookup(3, ofProbes, old = false, columns(0, 1)),
        new UnionAll(if (view.counted) Seq(5) else Seq(4, 5))
      )
      (programOf(steps, Seq(ofProbes, ofTable), ofTable), reader)
    }

    private def seenBy(bound: Int): SeenRows = {
      val condition = atLeast(bound, 1)
      val filtered = new SeenRows.Stage(
        bound == 0,
        found =>
          if (condition(found)) found
          else {
            seen += "a lookup passes over rows"
            null
          }
      )
      new SeenRows(IndexedSeq(filtered, SeenRows.projected(columns(1))))
    }

    private def exists(left: Arranged, right: Arranged): Operator = {
      val key = columns(0)
      new SemiJoinDelta(0, 3, left, right, key, key, IndexedSeq(false), None, columns(0), true)
    }

    private def lookup(in: Int, other: Arranged, old: Boolean, project: Evaluation): Operator =
      new Lookup(in, other, columns(0), IndexedSeq(false), old, None, project)

    // What happens to them

    private def begin(kind: Kind, asOf: Long, canFollow: Boolean): Unit = {
      opened += 1
      val name = s"program $opened"
      val (program, reader) = kind match {
        case OfIndex      => indexProgram(name, asOf)
        case view: OfView => viewProgram(name, view, asOf)
      }
      if (!isLoaded(program, asOf, canFollow)) {
        program.close()
        seen += "no room to load"
        alone(kind, asOf, canFollow, "alone without room for the index")
      } else if (passesOverMany(kind, program)) {
        program.close()
        alone(kind, asOf, canFollow, "alone as it would pass over many")
      } else {
        val output: Pairs = kind match {
          case OfIndex      => Map.empty
          case view: OfView => rowsOf(view, asOf)
        }
        open(name) = new Opened(kind, program, reader, asOf + 1, output)
        if (isServed(kind) && open.values.exists(_.kind == OfIndex))
          seen += "a view looks up in the index"
      }
    }

    private def isServed(kind: Kind): Boolean = kind match {
      case view: OfView => view.serves
      case OfIndex      => false
    }

    private def passesOverMany(kind: Kind, program: Program): Boolean = {
      val (rows, keys) = program.sizes.head
      isServed(kind) && rows > Many * math.max(1, keys)
    }

    /** Whether there was room for what it looks up. */
    private def isLoaded(program: Program, asOf: Long, canFollow: Boolean): Boolean =
      try {
        var found = program.load(null, null, asOf, None)
        var rounds = 0
        while (found != Hydrated.Done(Long.MaxValue)) {
          rounds += 1
          assert(rounds < 5)
          val Hydrated.Behind(upper) = found: @unchecked
          assert(upper <= asOf)
          seen += (if (canFollow) "brought forward" else "loaded anew")
          val deltas = Option.when(canFollow)(deltasOf(upper, asOf + 1))
          found = program.load(null, null, asOf, Some(Missed(upper, deltas)))
        }
        true
      } catch { case _: ArrangementTooLarge => false }

    private def deltasOf(lower: Long, upper: Long): Int => Updates =
      number => updates(if (number == 0) probes else table, lower, upper)

    /** A view goes on with what it keeps by itself; what else there is no room for is gone. */
    private def alone(kind: Kind, asOf: Long, canFollow: Boolean, why: String): Unit = kind match {
      case view: OfView if view.serves =>
        seen += why
        begin(view.copy(serves = false), asOf, canFollow)
      case _ =>
    }

    private def tick(name: String, each: Opened, width: Int, commits: Boolean): Unit = {
      val upper = math.min(each.reached + width, now)
      val lower = each.reached
      if (lower < upper) {
        if (each.reader.upper > upper) seen += "an arrangement is ahead of a tick"
        try {
          val (made, _) = each.program.tick(lower, upper, None, deltasOf(lower, upper), None)
          isRight(each, made, lower, upper)
          if (commits) {
            each.program.committed(upper)
            each.kind match {
              case view: OfView => each.output = rowsOf(view, upper - 1)
              case OfIndex      =>
            }
            each.reached = upper
          }
        } catch {
          case _: ArrangementTooLarge =>
            seen += "no room for a tick"
            close(name)
            alone(each.kind, lower - 1, canFollow = true, "alone without room for the index")
        }
      }
    }

    /** At each time of the interval the view is what its query makes of the collections. */
    private def isRight(each: Opened, made: Updates, lower: Long, upper: Long): Unit =
      each.kind match {
        case OfIndex      =>
        case view: OfView =>
          val changes = mutable.ArrayBuffer.empty[(Seq[Option[Int]], Long, Long)]
          made.foreach { (row, time, diff) =>
            assert(lower <= time && time < upper)
            changes += ((valuesOf(row), time, diff))
          }
          (lower until upper).foreach { t =>
            val until = changes.collect { case (pair, time, diff) if time <= t => pair -> diff }
            val found = sum(each.output.toSeq ++ until)
            assert(found == rowsOf(view, t), s"at $t of [$lower, $upper)")
          }
      }

    /** A query looks a key up in the index, at a time that this has. */
    private def ask(each: Opened, key: Int, back: Int): Unit = if (each.kind == OfIndex) {
      val at = each.reached - 1 - back
      val k = Option.when(key > 0)(key)
      val found = each.reader.reading(at) { arrangement =>
        val rows = mutable.ArrayBuffer.empty[(Seq[Option[Int]], Long)]
        arrangement.lookup(
          row(Seq(k)),
          at + 1,
          (row, time, diff) => {
            assert(time <= at)
            rows += valuesOf(row) -> diff
          }
        )
        sum(rows)
      }
      if (back == 0) assert(found.isDefined)
      found.foreach { rows =>
        seen += "asked"
        assert(rows == contents(table, at).filter(_._1.head == k))
      }
    }

    private def close(name: String): Unit = {
      val each = open.remove(name).get
      each.program.close()
      if (each.kind == OfIndex && open.values.exists(other => isServed(other.kind)))
        seen += "the index is dropped while a view looks up in it"
    }

    // What holds

    private def check(): Unit = {
      arrangements.validate()
      val sizes = arrangements.sizes("here")
      // An arrangement counts once, however many share it, and not longer than they do.
      assert(budget.used == sizes.map(_.bytes).sum)
      assert(sizes.forall(_.readers.nonEmpty))
      val reads = sizes.flatMap(_.readers).groupMapReduce(identity)(_ => 1)(_ + _)
      assert(reads == open.map { case (name, each) => name -> readsOf(each.kind) })
    }

    private def readsOf(kind: Kind): Int = if (kind == OfIndex) 1 else 2

    private def identitiesOf(kind: Kind): Seq[String] = kind match {
      case OfIndex                     => Seq("t")
      case view: OfView if view.serves => Seq("t", "p")
      case view: OfView                => Seq(s"t ${view.bound}", "p")
    }

    /** Programs that have come to the same time share all that they have in common; what is left when
      * they are gone is nothing.
      */
    def finish(): Unit = {
      budget.resize(Long.MaxValue, 0)
      now += 1
      // Readers go over to the arrangement of one that has come to the same time before them.
      open.keys.toSeq.foreach { first =>
        val (before, after) = open.toSeq.span(_._1 != first)
        (after ++ before).foreach { case (name, each) =>
          tick(name, each, now.toInt, commits = true)
        }
        now += 1
      }
      check()
      val identities = open.values.flatMap(each => identitiesOf(each.kind)).toSet
      assert(arrangements.sizes("here").size == identities.size)
      open.keys.toSeq.foreach { name =>
        close(name)
        check()
      }
      assert(budget.used == 0)
    }
  }
}
