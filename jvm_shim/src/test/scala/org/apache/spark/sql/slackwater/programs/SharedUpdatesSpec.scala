package org.apache.spark.sql.slackwater.programs

import scala.util.Random

import org.scalatest.funsuite.AnyFunSuite

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation
import org.apache.spark.sql.types.{LongType, StructType}

final class SharedUpdatesSpec extends AnyFunSuite {
  private val project = UnsafeProjection.create(new StructType().add("k", LongType))
  private val identity = StepIdentity("here", Map.empty, OneRowRelation())

  private def row(value: Long): UnsafeRow = project(InternalRow(value)).copy()

  private def updates(times: Iterable[Long]): Updates = {
    val made = new Updates
    times.foreach(time => made.add(row(time % 3), time, 1L))
    made
  }

  private def timesOf(found: Updates): Seq[Long] = {
    val times = Seq.newBuilder[Long]
    found.foreach((_, time, _) => times += time)
    times.result()
  }

  private def found(step: SharedStep, first: Long, last: Long): Option[Seq[Long]] =
    step.updates(first, last, TickBudget.unlimited).map(timesOf)

  test("what is found is all that there is at these times, whatever the ticks were") {
    (0 until 300).foreach { seed =>
      val random = new Random(seed)
      val shared = new SharedUpdates
      val step = shared.join(identity)
      shared.join(identity)
      val times = (0L until 60L).filter(_ => random.nextInt(3) == 0)
      (0 until 30).foreach { _ =>
        val lower = random.nextInt(60).toLong
        val upper = lower + 1 + random.nextInt(12)
        step.take(lower, upper, updates(times.filter(t => lower <= t && t < upper)))
        val first = random.nextInt(60).toLong
        val last = first + random.nextInt(8)
        found(step, first, last).foreach { each =>
          assert(each == times.filter(t => first <= t && t <= last), s"seed $seed")
        }
      }
    }
  }

  test("several ticks are found as one, and times that nobody computed are not") {
    val shared = new SharedUpdates
    val step = shared.join(identity)
    assert(shared.join(identity) eq step)
    step.take(10, 20, updates(Seq(10, 15)))
    step.take(15, 30, updates(Seq(15, 22)))
    assert(found(step, 10, 29).contains(Seq(10L, 15L, 22L)))
    assert(found(step, 9, 12).isEmpty)
    assert(found(step, 29, 30).isEmpty)
    step.take(40, 50, updates(Seq(41)))
    assert(found(step, 22, 41).isEmpty)
    assert(found(step, 41, 41).contains(Seq(41L)))
  }

  test("nothing is kept for a program that is alone, nor after the last one has left") {
    val shared = new SharedUpdates
    val alone = shared.join(identity)
    alone.take(10, 20, updates(Seq(10)))
    assert(found(alone, 10, 10).isEmpty)
    shared.join(identity)
    alone.take(20, 30, updates(Seq(20)))
    assert(found(alone, 20, 20).contains(Seq(20L)))
    shared.leave(identity)
    shared.leave(identity)
    assert(found(shared.join(identity), 20, 20).isEmpty)
  }

  test("a part that is too large is not kept") {
    val shared = new SharedUpdates
    val step = shared.join(identity)
    shared.join(identity)
    step.take(0, 10, updates(Seq(1)))
    val many = math.max(1L << 20, Runtime.getRuntime.maxMemory / 256) / 64
    step.take(10, 20, updates((0L to many).map(_ => 12L)))
    assert(found(step, 12, 12).isEmpty)
    step.take(20, 30, updates(Seq(21)))
    assert(found(step, 21, 21).contains(Seq(21L)))
  }
}
