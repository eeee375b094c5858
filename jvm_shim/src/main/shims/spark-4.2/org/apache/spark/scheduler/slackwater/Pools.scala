package org.apache.spark.scheduler.slackwater

import org.apache.spark.SparkContext
import org.apache.spark.scheduler.{Pool, SchedulingMode}

/** Pools of Spark's fair scheduler that no file describes. */
object Pools {

  /** Adds a pool below `parent`, or at the top if there is no such pool. Does nothing if it is there
    * already, or if the scheduler does not share by pools.
    *
    * Of what `parent` gets, each pool below it that wants some gets what its weight is of all theirs.
    */
  def add(context: SparkContext, parent: String, name: String, weight: Int): Unit = synchronized {
    val root = context.taskScheduler.rootPool
    val shares = root != null && root.schedulingMode == SchedulingMode.FAIR
    if (shares && root.getSchedulableByName(name) == null) {
      val made = new Pool(name, SchedulingMode.FAIR, 0, weight)
      root.getSchedulableByName(parent) match {
        case pool: Pool => pool.addSchedulable(made)
        case _          => root.addSchedulable(made)
      }
    }
  }
}
