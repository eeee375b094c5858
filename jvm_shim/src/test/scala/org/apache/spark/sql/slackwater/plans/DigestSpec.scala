package org.apache.spark.sql.slackwater.plans

import org.scalatest.funsuite.AnyFunSuite

import org.apache.spark.sql.catalyst.expressions.{BoundReference, Expression, Literal}
import org.apache.spark.sql.catalyst.expressions.aggregate.First
import org.apache.spark.sql.slackwater.binding.{MzNow, NotNullAsserted}
import org.apache.spark.sql.slackwater.plans.expressions.{Dated, OrderedAggregate}
import org.apache.spark.sql.slackwater.values.RowBytes
import org.apache.spark.sql.types.LongType

/** Stored definitions of views have digests: a class that moves, or has another name, keeps them. */
final class DigestSpec extends AnyFunSuite {
  private val column = BoundReference(0, LongType, nullable = true)

  private def digest(expression: Expression): String = Digest.of(expression, _ => None)

  test("an aggregate over rows in one order keeps its digest") {
    val ordered =
      OrderedAggregate.of(First(column, ignoreNulls = false), Seq(column), distinct = false)
    assert(digest(ordered) == "878121a93437e185276484a5523a64ef")
  }

  test("functions of ours keep their digests") {
    assert(digest(MzNow()) == "96d0119fee1605afda345c30f499d0ad")
    assert(digest(NotNullAsserted(column, "v", "c")) == "e9de360b15f9a28a364d9b6b11aaa1dc")
    assert(digest(Dated(Literal("12:30"))) == "4eb4a4857bc7e9bcfb7c40e05afcacae")
    assert(digest(RowBytes(Seq(column))) == "48923a0d67def1bcf65eca3e85e3ff04")
  }
}
