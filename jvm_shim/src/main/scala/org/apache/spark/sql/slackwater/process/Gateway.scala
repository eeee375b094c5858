package org.apache.spark.sql.slackwater.process

import java.net.{InetAddress, InetSocketAddress, ServerSocket, Socket}
import javax.net.ServerSocketFactory

import py4j.GatewayServer

import org.apache.spark.SparkConf
import org.apache.spark.util.Utils

/** Where the coordinator calls into this JVM: py4j on loopback, for who knows the secret.
  *
  * Not Spark's `Py4JServer`: over its sockets, an answer that takes more than one write waits until
  * the other side acknowledges the first, which it does after 40 ms.
  */
private[process] final class Gateway(conf: SparkConf) {
  // Where the coordinator looks, also when Java prefers IPv6.
  private val loopback = InetAddress.getByAddress(Array[Byte](127, 0, 0, 1))

  val secret: String = Utils.createSecret(conf)

  private val server = new GatewayServer.GatewayServerBuilder()
    .authToken(secret)
    .javaPort(0)
    .javaAddress(loopback)
    .serverSocketFactory(Gateway.Undelayed)
    .build()

  def port: Int = server.getListeningPort

  def start(): Unit = server.start()

  def shutdown(): Unit = server.shutdown()
}

private[process] object Gateway {

  /** Sockets that send what is written at once. */
  object Undelayed extends ServerSocketFactory {
    override def createServerSocket(): ServerSocket = new ServerSocket {
      override def accept(): Socket = {
        val accepted = super.accept()
        accepted.setTcpNoDelay(true)
        accepted
      }
    }

    override def createServerSocket(port: Int): ServerSocket = bound(port, 0, None)

    override def createServerSocket(port: Int, backlog: Int): ServerSocket =
      bound(port, backlog, None)

    override def createServerSocket(port: Int, backlog: Int, address: InetAddress): ServerSocket =
      bound(port, backlog, Some(address))

    private def bound(port: Int, backlog: Int, address: Option[InetAddress]): ServerSocket = {
      val socket = createServerSocket()
      socket.bind(new InetSocketAddress(address.orNull, port), backlog)
      socket
    }
  }
}
