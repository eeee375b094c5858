package org.apache.spark.sql.slackwater.bridge

import scala.collection.mutable

import org.apache.spark.SparkContext
import org.apache.spark.sql.slackwater.protocol.Errors

/** The calls of the bridge that run now, by job group: each has one of its own. */
private[bridge] final class RunningCalls {
  private val threads = mutable.Map.empty[String, Thread]
  // A cancel can come before the call that it means.
  private val early = mutable.LinkedHashSet.empty[String]

  /** Runs `body` with its jobs in `group`. Raises SLACKWATER_CANCELED when that was cancelled. */
  def within[A](context: SparkContext, group: String)(body: => A): A = {
    enter(group)
    try {
      context.setJobGroup(group, "Slackwater", interruptOnCancel = true)
      body
    } finally {
      context.clearJobGroup()
      leave(group)
    }
  }

  /** Ends the call of `group` with its jobs, those to come too. */
  def cancel(context: SparkContext, group: String): Unit = {
    synchronized {
      threads.get(group) match {
        case Some(thread) => thread.interrupt()
        case None         =>
          early.add(group)
          if (early.size > RunningCalls.kept) early.remove(early.head)
      }
    }
    context.cancelJobGroupAndFutureJobs(group)
  }

  private def enter(group: String): Unit = synchronized {
    if (early.remove(group)) throw Errors.user("SLACKWATER_CANCELED")
    threads(group) = Thread.currentThread
  }

  private def leave(group: String): Unit = synchronized {
    threads.remove(group)
    // The thread serves another call next.
    val _ = Thread.interrupted()
  }
}

private object RunningCalls {
  val kept = 1000

  /** Spark's own count: it follows the ends of tasks, in a cluster heartbeats of those that run too.
    */
  def rowsRead(context: SparkContext, group: String): Long = {
    val store = context.statusStore
    val jobs = context.statusTracker.getJobIdsForGroup(group).toSeq
    val stages = jobs.flatMap(job => store.asOption(store.job(job))).flatMap(_.stageIds).distinct
    stages.flatMap(stage => store.asOption(store.lastStageAttempt(stage))).map(_.inputRecords).sum
  }
}
