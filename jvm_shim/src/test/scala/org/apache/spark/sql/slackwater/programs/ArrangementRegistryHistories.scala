package org.apache.spark.sql.slackwater.programs

import scala.collection.mutable

import org.scalacheck.Gen
import org.scalatest.funsuite.AnyFunSuite
import org.scalatestplus.scalacheck.ScalaCheckPropertyChecks

/** Random interleavings of readers: what a shell may be told to do never takes from a reader what it
  * still reads, and leaves none waiting for nobody.
  */
final class ArrangementRegistryHistories extends AnyFunSuite with ScalaCheckPropertyChecks {
  import ArrangementRegistryHistories._

  implicit override val generatorDrivenConfig: PropertyCheckConfiguration =
    PropertyCheckConfiguration(minSuccessful = 2000, sizeRange = 150)

  test("readers find what they need, and what nobody reads is given back") {
    var shared = 0
    var united = 0
    forAll(Gen.listOf(steps)) { history =>
      val run = new Run
      history.foreach(run.step)
      shared += run.shared
      united += run.united
      run.finish()
    }
    assert(shared > 1000 && united > 30)
  }

  test("when nothing changes any more, all readers of an identity share one arrangement") {
    var apart = 0
    forAll(Gen.listOf(steps)) { history =>
      val run = new Run
      history.foreach(run.step)
      run.settle()
      if (run.registry.isApart) apart += 1
      run.rest()
      assert(!run.registry.isApart)
      run.finish()
    }
    assert(apart > 50)
  }
}

object ArrangementRegistryHistories {
  sealed trait Step
  final case class Register(identity: Int, asOf: Int) extends Step
  final case class Next(which: Int) extends Step
  final case class EndLoad(which: Int, succeeds: Boolean) extends Step

  /** `behind`: for how long before the tick's upper times stay readable; None: it is not committed. */
  final case class Tick(which: Int, width: Int, behind: Option[Int]) extends Step
  final case class Idle(which: Int, width: Int) extends Step
  final case class BringForward(which: Int, canFollow: Boolean) extends Step
  final case class Leave(which: Int) extends Step

  private val which = Gen.choose(0, 40)

  val steps: Gen[Step] = Gen.frequency(
    3 -> Gen.zip(Gen.frequency(5 -> 0, 1 -> 1), Gen.choose(0, 12)).map { case (i, t) =>
      Register(i, t)
    },
    12 -> which.map(Next(_)),
    4 -> Gen.zip(which, Gen.frequency(4 -> true, 1 -> false)).map { case (w, s) => EndLoad(w, s) },
    12 -> Gen.zip(which, Gen.choose(1, 4), Gen.option(Gen.frequency(3 -> 0, 1 -> 2))).map {
      case (w, width, behind) => Tick(w, width, behind)
    },
    4 -> Gen.zip(which, Gen.choose(1, 3)).map { case (w, width) => Idle(w, width) },
    4 -> Gen.zip(which, Gen.frequency(2 -> true, 1 -> false)).map { case (w, f) =>
      BringForward(w, f)
    },
    1 -> which.map(Leave(_))
  )

  /** What a shell holds: the actual arrangements, by what the effects have made of them. */
  final class Run {
    import ArrangementRegistry._

    val registry = new ArrangementRegistry[Int]
    private var identities = Map.empty[Long, Int]
    private val from = mutable.LinkedHashMap.empty[Long, Long]

    /** Before it the reader has brought all changes; in between nothing has changed for it. */
    private val has = mutable.LinkedHashMap.empty[Long, Long]
    private val complete = mutable.LinkedHashMap.empty[Long, Long]
    private val ready = mutable.LinkedHashSet.empty[Long]
    private val behind = mutable.LinkedHashMap.empty[Long, Long]
    private val loads = mutable.LinkedHashMap.empty[Long, (Long, Long)]
    private val actual = mutable.LinkedHashMap.empty[Long, (Long, Long)]
    var shared = 0
    var united = 0

    private def pick[A](all: Iterable[A], which: Int): Option[A] =
      Option.when(all.nonEmpty)(all.toSeq(which % all.size))

    def step(step: Step): Unit = {
      step match {
        case Register(identity, asOf) =>
          val reader = registry.register(identity, asOf)
          identities += reader -> identity
          from(reader) = asOf
          val at = registry.arrangementOf(reader)
          if (registry.all.exists(e => e.number == at && e.readers.size > 1)) shared += 1
        case Next(which) =>
          pick(from.keys.filterNot(r => ready(r) || loads.contains(r)), which).foreach(next)
        case EndLoad(which, succeeds) =>
          pick(loads.keys, which).foreach(endLoad(_, succeeds))
        case Tick(which, width, behind) => pick(ready, which).foreach(tick(_, width, behind))
        case Idle(which, width)         =>
          pick(ready, which).foreach(reader => idle(reader, complete(reader) + width))
        case BringForward(which, canFollow) =>
          pick(behind.keys, which).foreach { reader =>
            behind.remove(reader)
            if (canFollow) moved(reader, from(reader) + 1)
            else carryOut(registry.renew(reader))
          }
        case Leave(which) => pick(from.keys, which).foreach(leave)
      }
      check()
    }

    private def next(reader: Long): Unit = registry.next(reader) match {
      case Load(arrangement, asOf) =>
        assert(asOf == from(reader))
        assert(!actual.contains(arrangement) && !loads.values.exists(_._1 == arrangement))
        loads(reader) = (arrangement, asOf)
      case Ready(arrangement) =>
        val (since, upper) = actual(arrangement)
        assert(since <= from(reader) && from(reader) < upper)
        behind.remove(reader)
        ready += reader
        has(reader) = from(reader) + 1
        complete(reader) = has(reader)
      case Behind(arrangement, upper) =>
        val (since, held) = actual(arrangement)
        assert(since <= from(reader) && upper == held && upper <= from(reader))
        behind(reader) = arrangement
      case Wait =>
        val at = registry.all.find(_.number == registry.arrangementOf(reader)).get
        // Somebody loads it, or may: one that begins before all others is never told to wait.
        assert(
          loads.values.exists(_._1 == at.number) || at.readers.values.exists(_ < from(reader))
        )
    }

    private def endLoad(reader: Long, succeeds: Boolean): Unit = {
      val (arrangement, asOf) = loads.remove(reader).get
      if (succeeds) {
        actual(arrangement) = (asOf, asOf + 1)
        carryOut(registry.loaded(arrangement))
      } else carryOut(registry.failed(arrangement))
    }

    private def moved(reader: Long, upper: Long): Unit = {
      val arrangement = registry.arrangementOf(reader)
      val (since, before) = actual(arrangement)
      actual(arrangement) = (since, math.max(before, upper))
      carryOut(registry.advanced(reader, math.max(before, upper)))
    }

    /** Brings what changes from what it has on: what an arrangement lacks before that nobody brings.
      */
    private def tick(reader: Long, width: Int, behind: Option[Int]): Unit = {
      idle(reader, complete(reader))
      complete(reader) += width
      has(reader) = complete(reader)
      moved(reader, has(reader))
      behind.foreach { ms =>
        from(reader) = math.max(from(reader), has(reader) - 1 - ms)
        carryOut(registry.reads(reader, from(reader)))
        unite(reader)
      }
    }

    private def unite(reader: Long): Unit = {
      val before = registry.arrangementOf(reader)
      carryOut(registry.unite(reader, has(reader)))
      if (registry.arrangementOf(reader) != before) united += 1
    }

    private def idle(reader: Long, upper: Long): Unit = {
      unite(reader)
      complete(reader) = math.max(complete(reader), upper)
      moved(reader, complete(reader))
    }

    /** All are ready, and have reached the same time. */
    def settle(): Unit = {
      getReady()
      val upper = complete.values.maxOption.getOrElse(0L)
      ready.toSeq.foreach(idle(_, upper))
    }

    /** Time passes. */
    def rest(): Unit =
      (1 to 2).foreach { _ =>
        ready.toSeq.foreach(reader => idle(reader, complete(reader) + 1))
        check()
      }

    private def leave(reader: Long): Unit = {
      from.remove(reader)
      has.remove(reader)
      complete.remove(reader)
      ready -= reader
      behind.remove(reader)
      carryOut(registry.leave(reader))
    }

    private def carryOut(effects: Seq[Effect]): Unit = effects.foreach {
      case LookAgain              =>
      case Compact(number, since) =>
        val (before, upper) = actual(number)
        assert(before < since && since < upper)
        actual(number) = (since, upper)
      case Close(number) =>
        assert(actual.remove(number).nonEmpty)
        assert(!registry.all.exists(_.number == number))
    }

    private def check(): Unit = {
      registry.validate()
      // A reader finds all that it may ask for: by its number, in what the shell holds.
      ready.foreach { reader =>
        val (since, upper) = actual(registry.arrangementOf(reader))
        assert(since <= from(reader) && from(reader) < upper)
        assert(has(reader) <= complete(reader) && complete(reader) <= upper)
      }
      registry.all.foreach { entry =>
        assert(entry.readers.keys.forall(identities(_) == entry.identity))
        assert(entry.readers.forall { case (reader, at) => from(reader) == at })
        entry.phase match {
          case ArrangementPhase.Loaded(since, upper) =>
            assert(actual(entry.number) == (since, upper))
          case _ => assert(!actual.contains(entry.number))
        }
      }
    }

    /** Whoever still waits can go on, and afterwards there is nothing left. */
    def finish(): Unit = {
      getReady()
      from.keys.toSeq.foreach(leave)
      loads.keys.toSeq.foreach(endLoad(_, succeeds = true))
      check()
      assert(registry.all.isEmpty && actual.isEmpty)
    }

    private def getReady(): Unit = {
      var rounds = 0
      while (from.keys.exists(!ready(_))) {
        rounds += 1
        assert(rounds <= 4 * (from.size + 1), "readers wait for nobody")
        loads.keys.toSeq.foreach(endLoad(_, succeeds = true))
        behind.keys.toSeq.foreach { reader =>
          behind.remove(reader)
          moved(reader, from(reader) + 1)
        }
        from.keys.toSeq.filterNot(r => ready(r) || loads.contains(r)).foreach(next)
        check()
      }
    }
  }
}
