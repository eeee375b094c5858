package org.apache.spark.sql.slackwater.process

import java.nio.charset.StandardCharsets.{US_ASCII, UTF_8}

import org.scalatest.funsuite.AnyFunSuite

import org.apache.spark.sql.slackwater.protocol.SlackwaterAnalysisException

final class LocalesSpec extends AnyFunSuite {
  private val settings = Seq("python" -> "/usr/bin/python3", "location" -> "/data/m\u00fcll")

  test("what the locale has no characters for is refused by its name") {
    val refused =
      intercept[SlackwaterAnalysisException](Locales.check(settings, Seq(UTF_8, US_ASCII)))
    assert(refused.getCondition == "SLACKWATER_INVALID_OPTION")
    assert(refused.getMessage.contains("spark.slackwater.location"))
    assert(refused.getMessage.contains("LC_ALL=C.UTF-8"))
  }

  test("a password is not shown") {
    val secret = Seq("metastore.password" -> "\u00fcber")
    val refused = intercept[SlackwaterAnalysisException](Locales.check(secret, Seq(US_ASCII)))
    assert(!refused.getMessage.contains("\u00fcber"))
  }

  test("what it can say is let through") {
    Locales.check(settings, Seq(UTF_8))
    Locales.check(settings.take(1), Seq(US_ASCII))
  }
}
