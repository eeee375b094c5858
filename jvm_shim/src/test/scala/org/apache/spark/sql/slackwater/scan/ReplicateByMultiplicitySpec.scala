package org.apache.spark.sql.slackwater.scan

import org.scalatest.funsuite.AnyFunSuite

import org.apache.spark.sql.catalyst.expressions.Literal

final class ReplicateByMultiplicitySpec extends AnyFunSuite {
  private def times(multiplicity: Long, atMost: Long): Int =
    ReplicateByMultiplicity(Literal(multiplicity), atMost).eval(null).iterator.size

  test("a row comes as often as its multiplicity says, up to the limit") {
    assert(times(3, atMost = 5) == 3)
    assert(times(7, atMost = 5) == 5)
    assert(times(0, atMost = 5) == 0)
  }

  test("EXPLAIN shows it as copies") {
    assert(ReplicateByMultiplicity(Literal(2L), 5).toString == "copies(2, 5)")
  }
}
