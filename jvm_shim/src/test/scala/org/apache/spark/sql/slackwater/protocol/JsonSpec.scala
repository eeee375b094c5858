package org.apache.spark.sql.slackwater.protocol

import org.scalatest.funsuite.AnyFunSuite

final class JsonSpec extends AnyFunSuite {

  test("texts beyond what the library allows unless told are read") {
    val length = 25 * 1000 * 1000
    val answer = s"""{"inline": ["${"A" * length}"]}""".getBytes("UTF-8")
    assert(Json.mapper.readTree(answer).get("inline").get(0).asText.length == length)
  }
}
