package org.apache.spark.sql.slackwater.process

import java.io.IOException
import java.lang.invoke.VarHandle
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.channels.FileChannel
import java.nio.file.{Files, Path, Paths, StandardOpenOption}
import java.util.concurrent.ConcurrentHashMap

import scala.util.Try

import org.apache.spark.internal.Logging
import org.apache.spark.sql.slackwater.protocol.ObjectDescription

/** What the coordinator has said of its catalog, as long as it leads and nothing there has changed.
  *
  * What was found between two looks at the same revision is what is there, whoever changes the
  * catalog. Thread-safe.
  *
  * @param revision
  *   the catalog's now; None: it is just changing, or another coordinator may lead
  */
private[process] final class KnownCatalog(revision: () => Option[Long]) {
  import KnownCatalog._

  @volatile private var known = new Objects(0L)

  /** The object of that name: as it is known, or as `asked` finds it now. */
  def find(namespace: String, name: String)(
      asked: => Option[ObjectDescription]
  ): Option[ObjectDescription] =
    revision().fold(asked) { now =>
      val objects = at(now)
      val key = (namespace, name)
      Option(objects.byName.get(key)).orElse {
        val found = asked
        if (revision().contains(now)) found.foreach(objects.keep(key, _))
        found
      }
    }

  private def at(now: Long): Objects = {
    val objects = known
    if (objects.number == now) objects
    else {
      val none = new Objects(now)
      known = none
      none
    }
  }
}

private[process] object KnownCatalog extends Logging {

  /** So many objects are known at once. */
  private val most = 10000

  private val steadyNs = 8
  private val wallMs = 16
  private val bytes = 24L

  /** The coordinator has begun, and its lease ends, that near to now. */
  private val aboutNowNs = 600L * 1000 * 1000 * 1000

  private final class Objects(val number: Long) {
    val byName = new ConcurrentHashMap[(String, String), ObjectDescription]()

    def keep(key: (String, String), found: ObjectDescription): Unit = {
      if (byName.size >= most) byName.clear()
      val _ = byName.put(key, found)
    }
  }

  /** What is known of the catalog whose mark is in `file`; None where that cannot be read: then the
    * coordinator is asked each time.
    *
    * The file has three words: a number, odd while a change becomes visible and another even one
    * after it, and until when the coordinator leads, by the steady clock (ns) and by the wall clock
    * (ms).
    */
  def of(file: String): Option[KnownCatalog] =
    if (file.isEmpty) None
    else
      try {
        val path = Paths.get(file)
        val memory = mapped(path)
        // Nobody else needs its name, and who is killed could not remove it.
        Try(Files.deleteIfExists(path))
        Option.when(hasSameClock(memory))(new KnownCatalog(() => revision(memory)))
      } catch {
        case e: IOException =>
          logWarning(s"The mark of the catalog cannot be read: $file", e)
          None
      }

  private def revision(memory: ByteBuffer): Option[Long] = {
    VarHandle.fullFence()
    val number = memory.getLong(0)
    val leads = memory.getLong(steadyNs) - System.nanoTime > 0 &&
      memory.getLong(wallMs) > System.currentTimeMillis
    VarHandle.fullFence()
    Option.when(leads && number % 2 == 0)(number)
  }

  private def hasSameClock(memory: ByteBuffer): Boolean =
    math.abs(memory.getLong(steadyNs) - System.nanoTime) < aboutNowNs

  private def mapped(path: Path): ByteBuffer = {
    val channel = FileChannel.open(path, StandardOpenOption.READ)
    try channel.map(FileChannel.MapMode.READ_ONLY, 0L, bytes).order(ByteOrder.nativeOrder)
    finally channel.close()
  }
}
