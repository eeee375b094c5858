package org.apache.spark.sql.slackwater.arrangements

import scala.collection.mutable

import org.scalacheck.Gen
import org.scalatest.funsuite.AnyFunSuite
import org.scalatestplus.scalacheck.ScalaCheckPropertyChecks

import org.apache.spark.sql.types.IntegerType

final class TransitionQueueSpec extends AnyFunSuite with ScalaCheckPropertyChecks {
  import TransitionQueueSpec._

  private val row = new Rows(IntegerType)

  private val entry = Gen.zip(
    Gen.choose(0, 4),
    Gen.frequency(8 -> Gen.choose(1L, 30L), 1 -> Gen.choose(1000L, Long.MaxValue / 2)),
    Gen.oneOf(1L, 1L, -1L, 2L)
  )
  private val actions = Gen.listOf[Action](
    Gen.frequency(
      4 -> Gen.listOf(entry).map(Add.apply),
      2 -> Gen.choose(0L, 20L).map(Forget.apply)
    )
  )

  test("what waits is what was added and is not forgotten") {
    forAll(actions) { steps =>
      val budget = new MemoryBudget(64L << 20)
      val queue = new TransitionQueue(1, budget, "q")
      var model = Map.empty[(Int, Long), Long].withDefaultValue(0L)
      var since = 0L
      steps.foreach {
        case Add(rows) =>
          val batch = new TransitionBatch
          rows.foreach { case (value, later, diff) =>
            batch.add(row(value), since + later, diff)
            model = model.updated((value, since + later), model((value, since + later)) + diff)
          }
          queue.append(batch, since)
        case Forget(ahead) =>
          since += ahead
          queue.forget(since)
          model = model.filter(_._1._2 >= since).withDefaultValue(0L)
      }
      val (lower, upper) = (since + 2, since + 12)
      val wanted = model.filter { case ((_, time), n) => n != 0 && lower <= time && time < upper }
      for (_ <- 1 to 2) assert(found(queue, lower, upper) == wanted.toMap)
      val rest = model.collect { case ((_, time), n) if n != 0 && time >= lower => time }
      val told = queue.next(lower)
      assert(lower <= told && rest.forall(told <= _))
      queue.forget(Long.MaxValue)
      assert(queue.rows == 0 && budget.used == 0)
    }
  }

  test("what is due comes without what is far away") {
    val queue = new TransitionQueue(1, new MemoryBudget(64L << 20), "q")
    val batch = new TransitionBatch
    for (i <- 1 to 100000) batch.add(row(i), 1000000000L + i, -1)
    for (i <- 1 to 10) batch.add(row(i), 5, -1)
    queue.append(batch, 5)
    assert(queue.rows == 100010)
    assert(found(queue, 5, 6).size == 10)
    assert(queue.next(6) == 1000000001L)
    queue.forget(6)
    assert(queue.rows == 100000)
  }

  test("a retraction cancels what waits") {
    val budget = new MemoryBudget(64L << 20)
    val queue = new TransitionQueue(1, budget, "q")
    for (diff <- Seq(1L, -1L); _ <- 1 to 3) {
      val batch = new TransitionBatch
      for (i <- 1 to 1000) batch.add(row(i), 100L + i, diff)
      queue.append(batch, 1)
    }
    assert(queue.rows == 0 && budget.used == 0 && queue.next(0) == Long.MaxValue)
  }

  test("without memory nothing is added, and the owner is named") {
    val budget = new MemoryBudget(1L << 20)
    val queue = new TransitionQueue(1, budget, "late orders")
    val few = new TransitionBatch
    few.add(row(1), 7, 1)
    queue.append(few, 3)
    val many = new TransitionBatch
    for (i <- 1 to 200000) many.add(row(i), 100L + i, 1)
    val refused = intercept[ArrangementTooLarge](queue.append(many, 9))
    assert(refused.owner == "late orders")
    assert(queue.upper == 3 && queue.rows == 1)
    queue.close()
    assert(budget.used == 0)
  }

  private def found(queue: TransitionQueue, lower: Long, upper: Long): Map[(Int, Long), Long] = {
    val sums = mutable.HashMap.empty[(Int, Long), Long].withDefaultValue(0L)
    queue.between(lower, upper) { (row, time, diff) => sums((row.getInt(0), time)) += diff }
    sums.filter(_._2 != 0).toMap
  }
}

private object TransitionQueueSpec {
  sealed trait Action
  final case class Add(rows: Seq[(Int, Long, Long)]) extends Action
  final case class Forget(ahead: Long) extends Action
}
