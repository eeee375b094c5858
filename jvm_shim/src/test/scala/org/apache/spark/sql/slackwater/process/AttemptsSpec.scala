package org.apache.spark.sql.slackwater.process

import org.scalacheck.Gen
import org.scalatest.funsuite.AnyFunSuite
import org.scalatestplus.scalacheck.ScalaCheckPropertyChecks

final class AttemptsSpec extends AnyFunSuite with ScalaCheckPropertyChecks {

  test("a call is tried with as many coordinators, whatever connections each has broken") {
    forAll(Gen.listOfN(Attempts.limit, Gen.choose(0, Attempts.limit - 1))) { broken =>
      val attempts = new Attempts
      val goOn = broken.map { connections =>
        assert(Seq.fill(connections)(attempts.broke()).forall(identity))
        attempts.lost()
      }
      assert(goOn == Seq.fill(Attempts.limit - 1)(true) :+ false)
    }
  }

  test("a coordinator that goes on and breaks each connection is tried so often and no more") {
    val attempts = new Attempts
    val seen = Seq.fill(Attempts.limit)((attempts.isLastConnection, attempts.broke()))
    assert(seen == Seq.fill(Attempts.limit - 1)((false, true)) :+ ((true, false)))
  }
}
