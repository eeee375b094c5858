package org.apache.spark.sql.slackwater.process

import java.nio.{ByteBuffer, ByteOrder}
import java.nio.file.{Files, Path}

import org.scalatest.funsuite.AnyFunSuite

class LeaderMarkSpec extends AnyFunSuite {
  private val second = 1000L * 1000 * 1000
  private val soonNs = System.nanoTime + 60 * second
  private val soonMs = System.currentTimeMillis + 60000L

  private def file(words: Long*): Path = {
    val bytes = ByteBuffer.allocate(words.size * 8).order(ByteOrder.nativeOrder)
    words.foreach(bytes.putLong)
    Files.write(Files.createTempFile("mark", ""), bytes.array)
  }

  private def mark(words: Long*): LeaderMark = {
    val path = file(words: _*)
    val found = LeaderMark.of(path.toString)
    assert(!Files.exists(path))
    found.get
  }

  test("the revision counts while it is even and both clocks are before the ends") {
    val past = (System.nanoTime - second, System.currentTimeMillis - 1000L)
    assert(mark(2L, soonNs, soonMs, 7L, 0L, 0L).revision.contains(2L))
    assert(mark(3L, soonNs, soonMs, 7L, 0L, 0L).revision.isEmpty)
    assert(mark(2L, past._1, soonMs, 7L, 0L, 0L).revision.isEmpty)
    assert(mark(2L, soonNs, past._2, 7L, 0L, 0L).revision.isEmpty)
  }

  test("a moment has the oracle's time, and no commit of errors that is under way") {
    assert(mark(2L, soonNs, soonMs, 7L, 3L, 3L).moment.contains(Moment(2L, 3L, 7L)))
    assert(mark(2L, soonNs, soonMs, 7L, 4L, 3L).moment.isEmpty)
    assert(mark(2L, soonNs, soonMs, -1L, 3L, 3L).moment.isEmpty)
    assert(mark(3L, soonNs, soonMs, 7L, 3L, 3L).moment.isEmpty)
  }

  test("a mark that nobody has locked is not held") {
    val free = mark(2L, soonNs, soonMs, 7L, 0L, 0L)
    assert(!free.isHeld)
    assert(!free.isHeld)
  }

  test("a mark by another steady clock, and none, count for nothing") {
    val other = file(2L, System.nanoTime + 100000L * second, soonMs, 7L, 0L, 0L)
    assert(LeaderMark.of(other.toString).isEmpty)
    assert(LeaderMark.of("").isEmpty)
    assert(LeaderMark.of("/nowhere/mark").isEmpty)
  }
}
