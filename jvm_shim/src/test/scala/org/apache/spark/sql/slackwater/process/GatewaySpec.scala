package org.apache.spark.sql.slackwater.process

import java.net.{InetAddress, Socket}

import scala.util.Using

import org.scalatest.funsuite.AnyFunSuite

final class GatewaySpec extends AnyFunSuite {

  test("answers of any length are sent at once") {
    val loopback = InetAddress.getLoopbackAddress
    Using.resource(Gateway.Undelayed.createServerSocket(0, 1, loopback)) { server =>
      Using.resource(new Socket(loopback, server.getLocalPort)) { _ =>
        Using.resource(server.accept())(accepted => assert(accepted.getTcpNoDelay))
      }
    }
  }
}
