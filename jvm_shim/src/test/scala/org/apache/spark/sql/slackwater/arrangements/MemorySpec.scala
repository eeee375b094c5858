package org.apache.spark.sql.slackwater.arrangements

import java.nio.file.{Files, Path}
import java.util.concurrent.{Executors, TimeUnit}

import org.scalacheck.Gen
import org.scalatest.funsuite.AnyFunSuite
import org.scalatestplus.scalacheck.ScalaCheckPropertyChecks

import org.apache.spark.unsafe.Platform
import org.apache.spark.util.Utils

final class MemorySpec extends AnyFunSuite with ScalaCheckPropertyChecks {

  private val page = Slabs.PageBytes

  test("a budget gives no more than its limit, and names who wanted more") {
    val budget = new MemoryBudget(3 * page)
    val a = budget.allocate(2 * page, "a")
    val refused =
      intercept[ArrangementTooLarge](budget.allocate(2 * page, "orders by customer"))
    assert(
      refused.getMessage == "orders by customer wants 8192 bytes; of 12288 bytes 8192 are in use"
    )
    val b = budget.allocate(page, "b")
    Seq(a, b).foreach(block => block.slab.slabs.free(block))
    assert(budget.used == 0 && budget.reserved == 0)
  }

  test("a budget that becomes smaller keeps what is in use, and gives no more") {
    val budget = new MemoryBudget(4 * page)
    val blocks = Seq.fill(3)(budget.allocate(page, "a"))
    budget.resize(2 * page, 0)
    val refused = intercept[ArrangementTooLarge](budget.allocate(page, "a"))
    assert((refused.usedBytes, refused.limitBytes) == (3 * page, 2 * page))
    blocks.take(2).foreach(block => block.slab.slabs.free(block))
    val again = budget.allocate(page, "a")
    budget.resize(3 * page, 0)
    Seq(blocks.last, again, budget.allocate(page, "a")).foreach(b => b.slab.slabs.free(b))
    assert(budget.used == 0)
  }

  test("threads do not take the same bytes") {
    val slabs = new Slabs(SystemMemory, 100 * page)
    val threads = Executors.newFixedThreadPool(4)
    val granted =
      (1 to 4).map(_ => threads.submit(() => (1 to 50).flatMap(_ => slabs.allocate(page))))
    val blocks = granted.flatMap(_.get(60, TimeUnit.SECONDS))
    assert(blocks.map(_.address).distinct.size == 100)
    assert(slabs.used == 100 * page)
    blocks.foreach(slabs.free)
    threads.shutdown()
  }

  private def withFolder(body: Path => Unit): Unit = {
    val folder = Files.createTempDirectory("slackwater")
    try body(folder)
    finally Utils.deleteRecursively(folder.toFile)
  }

  test("a thread that is to end is told of no lack of memory") {
    withFolder { folder =>
      val budget = new MemoryBudget(page, Some(Spill(2 * page, folder)))
      val block = budget.allocate(page, "a")
      Thread.currentThread.interrupt()
      try assertThrows[InterruptedException](budget.allocate(page, "a"))
      finally { val _ = Thread.interrupted() }
      assert(budget.spilled == 0)
      val inFile = budget.allocate(page, "a")
      Seq(block, inFile).foreach(each => each.slab.slabs.free(each))
    }
  }

  test("memory that nobody refers to any more is given back") {
    def taken(): Long = new MemoryBudget(page).allocate(page, "an application's").bytes
    val before = SystemMemory.used
    assert(taken() == page)
    val end = System.nanoTime() + TimeUnit.MINUTES.toNanos(1)
    while (SystemMemory.used > before && System.nanoTime() - end < 0) {
      System.gc()
      Thread.onSpinWait()
    }
    assert(SystemMemory.used == before)
  }

  test("what does not fit into memory is in files without names, and they go when they are empty") {
    withFolder { folder =>
      val budget = new MemoryBudget(page, Some(Spill(2 * page, folder.resolve("spill"))))
      val blocks = (1 to 3).map(_ => budget.allocate(page, "a"))
      assert(budget.used == page && budget.spilled == 2 * page)
      assertThrows[ArrangementTooLarge](budget.allocate(page, "a"))
      assert(Files.list(folder.resolve("spill")).count == 0)
      for ((block, i) <- blocks.zipWithIndex) Platform.setMemory(block.address, i.toByte, page)
      for ((block, i) <- blocks.zipWithIndex)
        assert(Platform.getByte(null, block.address + page - 1) == i)
      blocks.foreach(block => block.slab.slabs.free(block))
      assert(budget.used == 0 && budget.spilled == 0 && budget.reserved == 0)
    }
  }

  test("a folder that takes no file gives no room") {
    withFolder { folder =>
      val file = Files.createFile(folder.resolve("a file"))
      val budget = new MemoryBudget(0, Some(Spill(Long.MaxValue, file)))
      assertThrows[ArrangementTooLarge](budget.allocate(page, "a"))
      assert(budget.spilled == 0 && budget.reserved == 0)
    }
  }

  test("blocks do not overlap, and slabs are given back") {
    val sizes = Gen.frequency(
      10 -> Gen.choose(1L, 100L),
      2 -> Gen.choose(1000L, 20000L)
    )
    forAll(Gen.listOf(Gen.zip(sizes, Gen.choose(0, 2), Gen.long))) { steps =>
      val slabs = new Slabs(SystemMemory, Long.MaxValue)
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
          val block = slabs.allocate(pages * Slabs.PageBytes).get
          Platform.putLong(null, block.address, mark)
          Platform.putLong(null, block.address + block.bytes - 8, mark)
          blocks :+= ((block, mark))
        }
      while (blocks.nonEmpty) free(0)
      assert(slabs.reserved == 0)
    }
  }

  test("a gap is used again, and neighbours join") {
    val slabs = new Slabs(SystemMemory, Long.MaxValue)
    val blocks = (1 to 4).map(_ => slabs.allocate(Slabs.SlabBytes / 4).get)
    slabs.free(blocks(1))
    slabs.free(blocks(2))
    val joined = slabs.allocate(Slabs.SlabBytes / 2).get
    assert(joined.address == blocks(1).address)
    assert(slabs.reserved == Slabs.SlabBytes)
    Seq(joined, blocks(0), blocks(3)).foreach(slabs.free)
    assert(slabs.reserved == 0)
  }

  test("a block is freed once") {
    val slabs = new Slabs(SystemMemory, Long.MaxValue)
    val block = slabs.allocate(Slabs.PageBytes).get
    val other = slabs.allocate(Slabs.PageBytes).get
    slabs.free(block)
    assertThrows[IllegalStateException](slabs.free(block))
    slabs.free(other)
  }
}
