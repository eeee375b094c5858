package org.apache.spark.sql.slackwater.protocol

import org.scalatest.funsuite.AnyFunSuite

final class JsonSpec extends AnyFunSuite {

  test("texts beyond what the library allows unless told are read") {
    val length = 25 * 1000 * 1000
    val answer = s"""{"inline": ["${"A" * length}"]}""".getBytes("UTF-8")
    assert(Json.mapper.readTree(answer).get("inline").get(0).asText.length == length)
  }

  test("an object whose columns cannot be read has its name") {
    val node = Json.mapper.readTree(
      """{"id": "u1", "kind": "table", "schema_name": "s", "name": "t", "schema": {"type": "struct",
        "fields": [{"name": "x", "type": "char(5)", "nullable": true,
        "metadata": {"__COLLATIONS": {"x": "spark.UTF8_LCASE"}}}]}}"""
    )
    val found = Json.objectDescription(node)
    assert(found.name == "t")
    val told = intercept[SlackwaterAnalysisException](found.schema)
    assert(told.getCondition == "SLACKWATER_UNSUPPORTED_TYPE")
    assert(told.getMessage.contains("s.t"))
  }
}
