package org.apache.spark.sql.slackwater.process

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
}
