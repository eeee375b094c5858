package org.apache.spark.sql.slackwater.process

import java.util.UUID

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.SparkContext
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.protocol.Coordinator

/** The jobs of one statement's write, from `begin` to `end`, by the thread that runs them.
  *
  * After a second, and each second from then on, the coordinator is told how many rows they have
  * written and how many of their tasks are done, and who sits before the statement sees it.
  */
private[slackwater] final class WriteProgress private (
    context: SparkContext,
    coordinator: Coordinator,
    request: ObjectNode
) {
  private val tag = s"slackwater-write-${UUID.randomUUID}"
  @volatile private var isTold = false
  context.addJobTag(tag)
  private val line = WaitLine.begin(told())

  /** They are over. What has become of them tells the call that commits what they wrote, unless there
    * is none because one has failed.
    */
  def end(failed: Boolean): Unit = {
    context.removeJobTag(tag)
    line.end()
    // After a look that may be under way.
    if (failed) WaitLine.afterwards(if (isTold) { val _ = coordinator.writing(over) })
  }

  private def told(): Option[String] = {
    val counts = WriteCounts.of(context, tag)
    isTold = true
    coordinator.writing(
      request.put("rows", counts.rows).put("tasks", counts.tasks).put("tasks_done", counts.done)
    )
  }

  private def over: ObjectNode = request.putNull("tasks")
}

private[slackwater] object WriteProgress {
  def begin(session: SparkSession, coordinator: Coordinator): WriteProgress = {
    val context = session.sparkContext
    val request = SparkSessions.request(session)
    RunningStatement.execution(context).foreach(request.put("execution", _))
    RunningStatement.describe(context, request)
    new WriteProgress(context, coordinator, request)
  }

  /** Runs `body`, whose jobs write for the session. */
  def during[A](session: SparkSession, coordinator: Coordinator)(body: => A): A = {
    val progress = begin(session, coordinator)
    var failed = true
    try {
      val found = body
      failed = false
      found
    } finally progress.end(failed)
  }
}

/** What jobs have written, and their tasks as far as they are known. */
private[slackwater] final case class WriteCounts(rows: Long, tasks: Int, done: Int)

private[slackwater] object WriteCounts {

  /** Spark's own counts: they follow the ends of tasks, and heartbeats of those that run. */
  def of(context: SparkContext, tag: String): WriteCounts = {
    val store = context.statusStore
    val jobs = context.statusTracker.getJobIdsForTag(tag).toSeq
    val stages = jobs.flatMap(job => store.asOption(store.job(job))).flatMap(_.stageIds).distinct
    val found = stages.flatMap(stage => store.asOption(store.lastStageAttempt(stage)))
    WriteCounts(
      found.map(_.outputRecords).sum,
      found.map(_.numTasks).sum,
      found.map(_.numCompleteTasks).sum
    )
  }
}
