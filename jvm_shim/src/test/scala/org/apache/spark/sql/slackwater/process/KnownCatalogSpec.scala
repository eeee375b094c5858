package org.apache.spark.sql.slackwater.process

import java.nio.{ByteBuffer, ByteOrder}
import java.nio.file.{Files, Path}

import org.scalatest.funsuite.AnyFunSuite

import org.apache.spark.sql.slackwater.protocol.ObjectDescription

class KnownCatalogSpec extends AnyFunSuite {
  private def described(id: String) =
    ObjectDescription(id, "table", "default", "t", None, true, Map.empty, None, None)

  private final class Asked(answers: Option[ObjectDescription]*) {
    private val left = answers.iterator
    def next(): Option[ObjectDescription] = left.next()
  }

  test("what is known is not asked for again until the revision is another one") {
    var revision: Option[Long] = Some(2L)
    val known = new KnownCatalog(() => revision)
    val asked = new Asked(Some(described("u1")), Some(described("u2")), Some(described("u3")))
    def found = known.find("default", "t")(asked.next()).map(_.id)
    assert(Seq(found, found) == Seq(Some("u1"), Some("u1")))
    revision = Some(4L)
    assert(Seq(found, found) == Seq(Some("u2"), Some("u2")))
    revision = None
    assert(found.contains("u3"))
    revision = Some(4L)
    assert(found.contains("u2"))
  }

  test("what was found while the catalog changed, or is not there, is asked for again") {
    var revision: Option[Long] = Some(2L)
    val known = new KnownCatalog(() => revision)
    val asked = new Asked(None, Some(described("u2")), Some(described("u3")))
    assert(known.find("default", "t")(asked.next()).isEmpty)
    val during = known.find("default", "t") {
      revision = Some(4L)
      asked.next()
    }
    assert(during.map(_.id).contains("u2"))
    assert(known.find("default", "t")(asked.next()).map(_.id).contains("u3"))
    assert(known.find("other", "t")(None).isEmpty)
  }

  private def marked(number: Long, steadyNs: Long, wallMs: Long): Path = {
    val words = ByteBuffer.allocate(24).order(ByteOrder.nativeOrder)
    Seq(number, steadyNs, wallMs).foreach(words.putLong)
    Files.write(Files.createTempFile("mark", ""), words.array)
  }

  /** How often it asks, of three times. */
  private def asks(known: KnownCatalog): Int = {
    var count = 0
    for (_ <- 1 to 3) known.find("default", "t") { count += 1; Some(described("u1")) }
    count
  }

  private val second = 1000L * 1000 * 1000

  test("a mark counts while its number is even and both clocks are before its ends") {
    val steady = System.nanoTime
    val wall = System.currentTimeMillis
    val ends = Seq(
      (2L, steady + 60 * second, wall + 60000L, 1),
      (3L, steady + 60 * second, wall + 60000L, 3),
      (2L, steady - second, wall + 60000L, 3),
      (2L, steady + 60 * second, wall - 1000L, 3)
    )
    ends.foreach { case (number, untilNs, untilMs, count) =>
      val file = marked(number, untilNs, untilMs)
      assert(KnownCatalog.of(file.toString).map(asks).contains(count))
      assert(!Files.exists(file))
    }
  }

  test("a mark by another steady clock, and none, count for nothing") {
    val file = marked(2L, System.nanoTime + 100000L * second, System.currentTimeMillis + 60000L)
    assert(KnownCatalog.of(file.toString).isEmpty)
    assert(KnownCatalog.of("").isEmpty)
    assert(KnownCatalog.of("/nowhere/mark").isEmpty)
  }
}
