package org.apache.spark.scheduler.slackwater

import org.apache.spark.SparkContext
import org.apache.spark.scheduler.{
  AllJobsCancelled,
  DAGScheduler,
  DAGSchedulerEvent,
  DAGSchedulerEventProcessLoop,
  JobGroupCancelled,
  JobTagCancelled
}

/** Somebody's wish that jobs end. */
sealed trait CancelRequest

object CancelRequest {
  case object Everything extends CancelRequest
  final case class Group(id: String) extends CancelRequest
  final case class Tag(name: String) extends CancelRequest
}

/** Tells of every wish to cancel jobs, also of one that meets no job.
  *
  * Spark's listeners hear of jobs that end, and a statement that waits at the coordinator has none.
  * Every such wish passes the scheduler's event loop on its way.
  */
object CancelRequests {

  /** Calls `observer` in the thread that cancels. Of several observers of a context the first stays.
    */
  def observe(context: SparkContext)(observer: CancelRequest => Unit): Unit = synchronized {
    Option(context.dagScheduler).foreach { scheduler =>
      scheduler.eventProcessLoop match {
        case _: Observed => ()
        case below       => scheduler.setEventProcessLoop(new Observed(scheduler, below, observer))
      }
    }
  }

  /** Passes everything on to the loop `below`, which runs; this one never starts. */
  private final class Observed(
      scheduler: DAGScheduler,
      below: DAGSchedulerEventProcessLoop,
      observer: CancelRequest => Unit
  ) extends DAGSchedulerEventProcessLoop(scheduler) {

    override def post(event: DAGSchedulerEvent): Unit = {
      below.post(event)
      event match {
        case AllJobsCancelled             => observer(CancelRequest.Everything)
        case cancelled: JobGroupCancelled => observer(CancelRequest.Group(cancelled.groupId))
        case cancelled: JobTagCancelled   => observer(CancelRequest.Tag(cancelled.tagName))
        case _                            => ()
      }
    }

    override def start(): Unit = below.start()
    override def stop(): Unit = below.stop()
    override def isActive: Boolean = below.isActive
  }
}
