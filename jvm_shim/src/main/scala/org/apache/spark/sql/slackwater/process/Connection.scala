package org.apache.spark.sql.slackwater.process

import java.io.{ByteArrayOutputStream, EOFException, IOException}
import java.net.{ConnectException, InetSocketAddress, Socket, SocketTimeoutException, URI}
import java.nio.charset.StandardCharsets.{ISO_8859_1, UTF_8}
import java.util.Locale
import java.util.concurrent.ConcurrentLinkedDeque

import scala.util.Try

/** What came back for a call. The names of headers are in small letters. */
private[process] final case class Answer(
    status: Int,
    headers: Map[String, String],
    body: Array[Byte]
)

/** A connection on which one thread sends a call and waits for its answer, without another thread:
  * on a busy machine each handing over waits for a processor.
  */
private[process] final class Connection(host: String, port: Int) extends AutoCloseable {
  import Connection._

  private val socket = new Socket()
  private val buffer = new Array[Byte](16384)
  private var received = new Received
  private var usedNs = System.nanoTime

  def open(): this.type = {
    socket.setTcpNoDelay(true)
    try socket.connect(new InetSocketAddress(host, port), connectMs)
    catch { case _: SocketTimeoutException => throw new ConnectException("nobody answers") }
    socket.setSoTimeout(tickMs)
    this
  }

  /** Whether it has been left alone for so long that its other end may have closed it. */
  def isOld: Boolean = System.nanoTime - usedNs > oldNs

  def send(path: String, token: String, body: Array[Byte]): Unit = {
    received = new Received
    val head = s"POST $path HTTP/1.1\r\nHost: $host:$port\r\nAuthorization: Bearer $token\r\n" +
      s"Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n"
    socket.getOutputStream.write(head.getBytes(UTF_8) ++ body)
  }

  /** The answer to the call that was sent. Asks `goesOn` now and then while there is none; None: it
    * was false, and the answer may be awaited further.
    */
  def receive(goesOn: () => Boolean): Option[Answer] = {
    var waits = true
    while (received.answer.isEmpty && waits) {
      try {
        val count = socket.getInputStream.read(buffer)
        if (count < 0) throw new EOFException("the connection was closed")
        received.add(buffer, count)
      } catch { case _: SocketTimeoutException => waits = goesOn() }
    }
    usedNs = System.nanoTime
    received.answer
  }

  override def close(): Unit = { val _ = Try(socket.close()) }
}

private[process] object Connection {
  private val connectMs = 10000

  /** So often somebody who waits looks up. */
  private val tickMs = 50
  private val oldNs = 60L * 1000 * 1000 * 1000
  private val headEnd = "\r\n\r\n".getBytes(ISO_8859_1)

  private final case class Head(status: Int, headers: Map[String, String], size: Int, body: Int)

  /** The bytes of one answer, as they come. */
  private[process] final class Received {
    private val bytes = new ByteArrayOutputStream()
    private var head: Option[Head] = None

    def add(more: Array[Byte], count: Int): Unit = {
      bytes.write(more, 0, count)
      if (head.isEmpty) head = headOf(bytes.toByteArray)
    }

    /** When all of it is there. */
    def answer: Option[Answer] = head.filter(h => bytes.size >= h.size + h.body).map { h =>
      Answer(h.status, h.headers, bytes.toByteArray.slice(h.size, h.size + h.body))
    }
  }

  private def headOf(bytes: Array[Byte]): Option[Head] = {
    val end = bytes.indexOfSlice(headEnd)
    Option.when(end >= 0) {
      val lines = new String(bytes, 0, end, ISO_8859_1).split("\r\n").toSeq
      val headers = lines.tail.map { line =>
        val (name, value) = line.splitAt(line.indexOf(':'))
        name.trim.toLowerCase(Locale.ROOT) -> value.drop(1).trim
      }.toMap
      Head(
        number(lines.head.split(" ").lift(1)),
        headers,
        end + headEnd.length,
        number(headers.get("content-length"))
      )
    }
  }

  private def number(text: Option[String]): Int = text
    .flatMap(_.toIntOption)
    .getOrElse(throw new IOException("the answer does not say its status or its length"))
}

/** The connections to one coordinator that nobody uses just now. Thread-safe. */
private[process] final class Connections(address: String) extends AutoCloseable {
  private val idle = new ConcurrentLinkedDeque[Connection]()
  private val uri = URI.create(address)
  @volatile private var closed = false

  /** One that was used just before, or a new one. */
  def take(): Connection = {
    val found = Iterator.continually(idle.pollFirst()).takeWhile(_ != null).find { connection =>
      val old = connection.isOld
      if (old) connection.close()
      !old
    }
    found.getOrElse(new Connection(uri.getHost, uri.getPort).open())
  }

  /** Keeps one whose answer has come. */
  def give(connection: Connection): Unit = {
    idle.addFirst(connection)
    if (closed) close()
  }

  override def close(): Unit = {
    closed = true
    Iterator.continually(idle.pollFirst()).takeWhile(_ != null).foreach(_.close())
  }
}
