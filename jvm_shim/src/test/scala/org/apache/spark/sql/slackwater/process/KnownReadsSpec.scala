package org.apache.spark.sql.slackwater.process

import org.scalatest.funsuite.AnyFunSuite

import org.apache.spark.sql.slackwater.protocol.{Json, RelationRead}

class KnownReadsSpec extends AnyFunSuite {
  private val t = RelationRead("u1", Seq("k"))
  private val u = RelationRead("u2", Nil)

  private final class Fixture {
    var now: Option[Moment] = Some(Moment(2L, 0L, 10L))
    var held = true
    var clockNs = 0L
    val reads = new KnownReads(() => now, () => held, () => clockNs)

    def bound(wanted: RelationRead*): Unit = bound(again = true, wanted: _*)

    def bound(again: Boolean, wanted: RelationRead*): Unit =
      answered(reads.before.get, again, wanted)

    def answered(before: Moment, again: Boolean, wanted: Seq[RelationRead]): Unit = {
      val answer = Json.obj().put("again", again).put("result_bytes", 99L)
      val relations = answer.putArray("relations")
      wanted.foreach(read =>
        relations.addObject().put("id", read.id).putArray("indexes").add(read.id)
      )
      reads.keep("s", wanted, before, answer)
    }

    def time(wanted: RelationRead*): Option[Long] = reads.find("s", wanted).map(_.timestamp)
  }

  test("what a bind has said counts for reads of the same columns in the same session") {
    val f = new Fixture
    assert(f.time(t).isEmpty)
    f.bound(t, u)
    f.now = f.now.map(_.copy(readTs = 12L))
    val found = f.reads.find("s", Seq(u, t)).get
    assert((found.timestamp, found.resultBytes) == ((12L, 99L)))
    assert(found.offers.map(_.get(0).asText) == Seq("u2", "u1"))
    assert(found.stillCounts())
    assert(f.reads.find("other", Seq(t)).isEmpty)
    assert(f.time(t.copy(notNull = Nil)).isEmpty)
    assert(f.time(t, RelationRead("u3", Nil)).isEmpty)
    f.reads.forget("s")
    assert(f.time(t).isEmpty)
  }

  test("a change of the catalog, errors, and another leader end it") {
    val f = new Fixture
    for (later <- Seq(Moment(4L, 0L, 12L), Moment(4L, 1L, 12L))) {
      f.bound(t)
      val begun = f.reads.find("s", Seq(t)).get
      f.now = Some(later)
      assert(!begun.stillCounts())
      assert(f.time(t).isEmpty)
    }
    f.bound(t)
    f.held = false
    assert(!f.reads.find("s", Seq(t)).get.stillCounts())
    f.now = None
    assert(f.time(t).isEmpty)
  }

  test("what changed while a bind was answered does not count") {
    val f = new Fixture
    val before = f.reads.before.get
    f.now = Some(Moment(2L, 1L, 12L))
    f.answered(before, again = true, Seq(t))
    assert(f.time(t).isEmpty)
  }

  test("it counts for a second, and not where the bind says so") {
    val f = new Fixture
    f.bound(again = false, t)
    assert(f.time(t).isEmpty)
    f.bound(t)
    f.clockNs = 999L * 1000 * 1000
    assert(f.time(t).contains(10L))
    f.clockNs += 1000L * 1000
    assert(f.time(t).isEmpty)
  }
}
