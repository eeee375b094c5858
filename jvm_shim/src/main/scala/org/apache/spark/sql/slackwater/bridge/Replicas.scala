package org.apache.spark.sql.slackwater.bridge

import java.nio.file.Path

import scala.collection.mutable

import org.apache.spark.SparkContext
import org.apache.spark.scheduler.slackwater.Pools
import org.apache.spark.sql.slackwater.arrangements.{MemoryBudget, Spill}
import org.apache.spark.sql.slackwater.programs.Arrangements

/** A replica of the coordinator of an environment, by its name there; "" for work of none. */
private[bridge] final case class ReplicaName(environment: String, replica: String) {
  def isNone: Boolean = replica.isEmpty
}

private[bridge] object ReplicaName {

  /** Work of no replica is of no environment either. */
  def of(environment: String, replica: String): ReplicaName =
    ReplicaName(if (replica.isEmpty) "" else environment, replica)
}

/** What a replica has for itself in a driver: arrangements, and a pool of Spark's scheduler. */
private[bridge] final class ReplicaRoom(
    val name: ReplicaName,
    spill: Option[Path],
    scanned: MemoryBudget
) {
  private[bridge] var weight = 0
  private val budget = new MemoryBudget(0, spill.map(Spill(0, _)))
  val arrangements = new Arrangements(budget, scanned)

  /** Jobs of a thread go to the pool that is theirs when they begin. */
  @volatile private[bridge] var pool: String = BridgeSession.pool

  private[bridge] def share(memoryBytes: Long, fileBytes: Long): Unit =
    budget.resize(memoryBytes, fileBytes)
}

/** The replicas in a driver, which share its memory for arrangements, and executors, by their weights.
  * Thread-safe.
  *
  * With the sum W of all weights, a replica of the weight w may take w / W of the memory and of the
  * files. A replica that comes makes the shares of the others smaller: what they have stays, and they
  * get no more until it is less than their share.
  *
  * @param scanned
  *   what ticks of all replicas take together that read by jobs
  */
private[bridge] final class Replicas(
    context: SparkContext,
    memoryBytes: Long,
    fileBytes: Long,
    folder: Path,
    scanned: MemoryBudget
) {
  private val rooms = mutable.HashMap.empty[ReplicaName, ReplicaRoom]

  /** The room of a replica, which has this weight from now on. */
  def weighed(name: ReplicaName, weight: Int): ReplicaRoom = synchronized {
    val room = rooms.getOrElseUpdate(name, opened(name))
    if (room.weight != weight) {
      room.weight = weight
      if (!name.isNone) room.pool = pooled(name, weight)
      share()
    }
    room
  }

  def find(name: ReplicaName): Option[ReplicaRoom] = synchronized(rooms.get(name))

  /** The replica has ended, and its arrangements are closed. */
  def remove(name: ReplicaName): Unit = synchronized {
    rooms.remove(name)
    share()
  }

  private def opened(name: ReplicaName): ReplicaRoom =
    new ReplicaRoom(name, Option.when(fileBytes > 0)(folder), scanned)

  /** A pool never changes its weight in Spark, and one with jobs cannot be removed. */
  private def pooled(name: ReplicaName, weight: Int): String = {
    val pool = s"${BridgeSession.pool} ${name.replica} ($weight)"
    Pools.add(context, BridgeSession.pool, pool, weight)
    pool
  }

  private def share(): Unit = {
    val all = rooms.values.map(_.weight.toDouble).sum
    rooms.values.foreach { room =>
      val part = room.weight / all
      room.share((memoryBytes * part).toLong, (fileBytes * part).toLong)
    }
  }
}
