package org.apache.spark.sql.slackwater.process

import java.time.Duration
import java.util.concurrent.{
  CompletableFuture,
  ConcurrentHashMap,
  ExecutionException,
  TimeUnit,
  TimeoutException
}

import scala.annotation.tailrec

import org.apache.spark.SparkContext
import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.slackwater.{CancelRequest, CancelRequests}

/** A call's wait for its answer, in the thread of a statement.
  *
  * It ends early when the thread is interrupted, which is how the Thrift and the Connect server
  * cancel, and when jobs are cancelled by a group or a tag that the thread has, or all of them:
  * `SparkContext.cancelJobGroup` and its like, and Ctrl-C in spark-sql.
  */
private[slackwater] final class Wait(group: Option[String], tags: Set[String]) {
  private val ended = new CompletableFuture[Unit]

  def concerns(request: CancelRequest): Boolean = request match {
    case CancelRequest.Everything => true
    case CancelRequest.Group(id)  => group.contains(id)
    case CancelRequest.Tag(name)  => tags.contains(name)
  }

  def end(): Unit = { val _ = ended.complete(()) }

  /** Whether the wait was ended. */
  def isOver: Boolean = ended.isDone

  /** The value of `answer`; None when the wait was ended first. Calls `onSilence` each time that
    * `silence` has passed without either. Raises what that raises, what `answer` failed with, and
    * `InterruptedException`.
    */
  @tailrec
  def until[A](answer: CompletableFuture[A], silence: Duration)(onSilence: => Unit): Option[A] = {
    val over =
      try {
        CompletableFuture.anyOf(answer, ended).get(silence.toMillis, TimeUnit.MILLISECONDS)
        true
      } catch {
        case _: TimeoutException         => false
        case failure: ExecutionException => throw failure.getCause
      }
    if (over) Option.when(answer.isDone)(answer.join())
    else {
      onSilence
      until(answer, silence)(onSilence)
    }
  }
}

private[slackwater] object Waits extends Logging {
  private val groupKey = "spark.jobGroup.id"
  private val open = new ConcurrentHashMap[String, java.util.Set[Wait]]()

  /** Runs `body` with a wait that a cancel of this thread's jobs ends. */
  def during[A](context: SparkContext)(body: Wait => A): A = {
    val wait = new Wait(Option(context.getLocalProperty(groupKey)), context.getJobTags())
    val waits =
      open.computeIfAbsent(context.applicationId, _ => ConcurrentHashMap.newKeySet[Wait]())
    waits.add(wait)
    try {
      listen(context)
      body(wait)
    } finally waits.remove(wait)
  }

  /** Another minor of Spark may have no such place: then threads can still be interrupted. */
  private def listen(context: SparkContext): Unit = {
    val id = context.applicationId
    try CancelRequests.observe(context)(end(id, _))
    catch { case missing: LinkageError => logDebug("Cancelled job groups are not seen", missing) }
  }

  private def end(applicationId: String, request: CancelRequest): Unit =
    Option(open.get(applicationId)).foreach(_.forEach { wait =>
      if (wait.concerns(request)) wait.end()
    })
}
