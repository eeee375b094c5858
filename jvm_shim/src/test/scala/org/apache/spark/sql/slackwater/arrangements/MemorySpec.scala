package org.apache.spark.sql.slackwater.arrangements

import java.util.concurrent.{Executors, TimeUnit}

import org.scalacheck.Gen
import org.scalatest.funsuite.AnyFunSuite
import org.scalatestplus.scalacheck.ScalaCheckPropertyChecks

import org.apache.spark.unsafe.Platform

final class MemorySpec extends AnyFunSuite with ScalaCheckPropertyChecks {

  test("a budget gives no more than its limit, and names who wanted more") {
    val budget = new MemoryBudget(100)
    budget.reserve(60, "a")
    val refused = intercept[ArrangementTooLarge](budget.reserve(41, "orders by customer"))
    assert(refused.getMessage == "orders by customer wants 41 bytes; of 100 bytes 60 are in use")
    budget.reserve(40, "b")
    budget.release(100)
    assert(budget.used == 0)
    assertThrows[IllegalStateException](budget.release(1))
  }

  test("threads do not reserve the same bytes") {
    val budget = new MemoryBudget(1000)
    val threads = Executors.newFixedThreadPool(4)
    val granted = (1 to 4).map(_ =>
      threads.submit { () =>
        (1 to 1000).count { _ =>
          try {
            budget.reserve(1, "a")
            true
          } catch { case _: ArrangementTooLarge => false }
        }
      }
    )
    assert(granted.map(_.get(60, TimeUnit.SECONDS)).sum == 1000)
    assert(budget.used == 1000)
    threads.shutdown()
  }

  test("blocks do not overlap, and slabs are given back") {
    val sizes = Gen.frequency(
      10 -> Gen.choose(1L, 100L),
      2 -> Gen.choose(1000L, 20000L)
    )
    forAll(Gen.listOf(Gen.zip(sizes, Gen.choose(0, 2), Gen.long))) { steps =>
      val slabs = new Slabs
      var blocks = Vector.empty[(Block, Long)]
      def free(i: Int): Unit = {
        val (block, mark) = blocks(i)
        assert(Platform.getLong(null, block.address) == mark)
        assert(Platform.getLong(null, block.address + block.bytes - 8) == mark)
        slabs.free(block)
        blocks = blocks.patch(i, Nil, 1)
      }
      for ((pages, action, mark) <- steps)
        if (action == 0 && blocks.nonEmpty) free(math.floorMod(mark, blocks.size.toLong).toInt)
        else {
          val block = slabs.allocate(pages * Slabs.PageBytes)
          Platform.putLong(null, block.address, mark)
          Platform.putLong(null, block.address + block.bytes - 8, mark)
          blocks :+= ((block, mark))
        }
      while (blocks.nonEmpty) free(0)
      assert(slabs.bytes == 0)
    }
  }

  test("a gap is used again, and neighbours join") {
    val slabs = new Slabs
    val blocks = (1 to 4).map(_ => slabs.allocate(Slabs.SlabBytes / 4))
    slabs.free(blocks(1))
    slabs.free(blocks(2))
    val joined = slabs.allocate(Slabs.SlabBytes / 2)
    assert(joined.address == blocks(1).address)
    assert(slabs.bytes == Slabs.SlabBytes)
    Seq(joined, blocks(0), blocks(3)).foreach(slabs.free)
    assert(slabs.bytes == 0)
  }

  test("a block is freed once") {
    val slabs = new Slabs
    val block = slabs.allocate(Slabs.PageBytes)
    val other = slabs.allocate(Slabs.PageBytes)
    slabs.free(block)
    assertThrows[IllegalStateException](slabs.free(block))
    slabs.free(other)
  }
}
