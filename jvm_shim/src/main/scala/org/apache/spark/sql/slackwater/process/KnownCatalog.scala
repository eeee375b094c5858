package org.apache.spark.sql.slackwater.process

import java.util.concurrent.ConcurrentHashMap

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

private object KnownCatalog {

  /** So many objects are known at once. */
  private val most = 10000

  private final class Objects(val number: Long) {
    val byName = new ConcurrentHashMap[(String, String), ObjectDescription]()

    def keep(key: (String, String), found: ObjectDescription): Unit = {
      if (byName.size >= most) byName.clear()
      val _ = byName.put(key, found)
    }
  }
}
