package org.apache.spark.sql.slackwater.hold

import java.lang.ref.{Cleaner, WeakReference}
import java.util.concurrent.{ConcurrentHashMap, ConcurrentLinkedQueue, Executors}
import java.util.concurrent.atomic.{AtomicBoolean, AtomicLong}

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.SparkThrowable
import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{SparkListener, SparkListenerEvent}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.SQLExecution
import org.apache.spark.sql.execution.ui.{
  SparkListenerSQLExecutionEnd,
  SparkListenerSQLExecutionStart
}
import org.apache.spark.sql.slackwater.process.{Lingering, Threads}
import org.apache.spark.sql.slackwater.protocol.{Coordinator, Json}

/** The promise that what a bind named stays readable. Released once, or consumed by a write.
  *
  * Bound plans and the descriptions of their tasks keep it reachable.
  */
private[slackwater] final class Hold private (
    val coordinator: Coordinator,
    val name: String,
    whenEnded: Outcome => Unit
) {
  private val ended = new HoldEnd

  /** How it is read. */
  val strategy: ReadStrategy = new ReadStrategy

  /** Asks for the release, which comes a little later; does nothing when it is over already. */
  def release(outcome: Outcome = Outcome.unknown): Unit =
    ended.once(whenEnded(outcome.copy(strategy = strategy.name)))

  /** A write took the hold with it. */
  def consumed(): Unit = ended.once(())

  /** Whether nothing is read under it any more. */
  def isOver: Boolean = ended.isOver

  /** What is done when nothing refers to the hold any more. It must not reach the hold. */
  private[hold] def whenCollected: Runnable = {
    val (end, once, read) = (whenEnded, ended, strategy)
    () => once.once(end(Outcome.unknown.copy(strategy = read.name)))
  }
}

/** Whether a hold is over, which outlives the hold itself. */
private final class HoldEnd {
  private val ended = new AtomicBoolean

  def once(body: => Unit): Unit = if (ended.compareAndSet(false, true)) body
  def isOver: Boolean = ended.get
}

private[slackwater] object Hold {

  /** A hold that a bind of the session has named. */
  def of(coordinator: Coordinator, session: String, name: String): Hold =
    new Hold(coordinator, name, Holds.enqueue(coordinator, session, name, _))

  /** The hold of a read whose rows are there already: when it ends, the coordinator is told of `read`,
    * which has begun at `beganNs`.
    */
  def unbound(coordinator: Coordinator, read: ObjectNode, beganNs: Long): Hold = {
    def tell(outcome: Outcome): Unit = {
      outcome.describe(read)
      coordinator.tell(read, beganNs)
    }
    new Hold(coordinator, read.get("execution").asText, tell)
  }

  /** When a hold is over. */
  sealed trait End
  case object Now extends End
  case object WithExecution extends End
  case object WhenCollected extends End
}

/** How what read under a hold ended: with how many rows in the driver, if anybody has counted them,
  * with which failure, after how long, if Spark has said so, and how it was read, if it was.
  */
private[slackwater] final case class Outcome(
    rows: Option[Long],
    failure: Option[Throwable],
    tookMs: Option[Long] = None,
    strategy: Option[String] = None
) {
  import Outcome._

  /** As the protocol has it. */
  def describe(node: ObjectNode): Unit = {
    tookMs.foreach(took => node.put("took_ms", took))
    rows.foreach(count => node.put("rows", count))
    strategy.foreach(node.put("strategy", _))
    failure.foreach { error =>
      val stated = causes(error).collectFirst {
        case known: Throwable with SparkThrowable if known.getCondition != null => known
      }
      val said = stated.getOrElse(causes(error).last)
      node.put("condition", stated.fold(said.getClass.getSimpleName)(_.getCondition))
      Option(said.getMessage).foreach { text =>
        node.put("message", text.linesIterator.nextOption().getOrElse("").take(most))
      }
    }
  }
}

private[slackwater] object Outcome {
  val unknown: Outcome = Outcome(None, None)
  def failed(error: Throwable): Outcome = Outcome(None, Some(error))

  /** So much of a message is told. */
  private val most = 2000

  private def causes(error: Throwable): Seq[Throwable] =
    Iterator.iterate(error)(_.getCause).takeWhile(_ != null).take(20).toSeq
}

private[slackwater] final case class Released(
    coordinator: Coordinator,
    session: String,
    name: String,
    outcome: Outcome,
    endedNs: Long
)

/** What reads within one SQL execution, and how many rows it has brought to the driver. */
private final class RunningReads {
  private val holds = new ConcurrentLinkedQueue[WeakReference[Hold]]()
  private val counted = new AtomicLong(-1)
  @volatile private var beganMs = Option.empty[Long]

  def begin(atMs: Long): Unit = beganMs = Some(atMs)

  def add(hold: Hold): Unit = { val _ = holds.add(new WeakReference(hold)) }

  def returned(rows: Long): Unit = {
    val _ = counted.updateAndGet(before => math.max(before, 0) + rows)
  }

  def end(failure: Option[Throwable], atMs: Long): Unit = {
    val tookMs = beganMs.map(began => math.max(0, atMs - began))
    val outcome = Outcome(Some(counted.get).filter(_ >= 0), failure, tookMs)
    // The rows are those of the execution, whatever it reads under.
    holds.asScala.flatMap(hold => Option(hold.get)).zipWithIndex.foreach { case (hold, index) =>
      hold.release(if (index == 0) outcome else outcome.copy(rows = None))
    }
  }
}

/** Releases holds when what reads under them has ended. */
private[slackwater] object Holds extends Logging {
  private val cleaner = Cleaner.create()
  private val running = new ConcurrentHashMap[Long, RunningReads]()
  private val listening = java.util.Collections.newSetFromMap(
    new ConcurrentHashMap[String, java.lang.Boolean]()
  )

  /** After so long a hold that has ended is released by a call of its own. */
  private val lingerMs = 50L
  private lazy val sender = Executors.newSingleThreadScheduledExecutor(
    Threads.factory("slackwater-release")
  )
  private val waiting = new Lingering[Released](sender, lingerMs)(send)

  /** What is read after the execution that made it has ended. PySpark's have no name at all. */
  private val lazyActions = Set("toLocalIterator", "rdd", "checkpoint", "localCheckpoint")

  /** Ends `hold` with the running SQL execution, or, outside of one, when its plan is collected. */
  def follow(session: SparkSession, hold: Hold): Unit =
    executionOf(session) match {
      case Some(id) => await(session, id, hold)
      case None     => releaseWhenCollected(hold)
    }

  /** The SQL execution that the thread is in. */
  def executionOf(session: SparkSession): Option[Long] =
    Option(session.sparkContext.getLocalProperty(SQLExecution.EXECUTION_ID_KEY)).map(_.toLong)

  /** Spark may drop the event of the execution's end: then the hold ends when it is collected. */
  private def await(session: SparkSession, id: Long, hold: Hold): Unit = {
    listen(session)
    releaseWhenCollected(hold)
    running.compute(
      id,
      (_, known) => {
        val reads = if (known == null) new RunningReads else known
        reads.add(hold)
        reads
      }
    )
  }

  /** Notes that the thread's SQL execution has brought so many rows to the driver. */
  def returned(session: SparkSession, rows: Int): Unit =
    executionOf(session).flatMap(id => Option(running.get(id))).foreach(_.returned(rows.toLong))

  private def listen(session: SparkSession): Unit = {
    val context = session.sparkContext
    if (listening.add(context.applicationId)) context.addSparkListener(Ends)
  }

  private object Ends extends SparkListener {
    override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
      case start: SparkListenerSQLExecutionStart =>
        // Whoever binds is planned before Spark tells that the execution has begun.
        Option(running.get(start.executionId)).foreach(_.begin(start.time))
      case end: SparkListenerSQLExecutionEnd =>
        val reads = running.remove(end.executionId)
        if (reads != null) {
          val pulled = end.executionName.forall(lazyActions.contains)
          if (!pulled) reads.end(end.executionFailure, end.time)
        }
      case _ =>
    }
  }

  /** Ends `hold` when no plan and no RDD refers to it any more. */
  def releaseWhenCollected(hold: Hold): Unit = {
    val _ = cleaner.register(hold, hold.whenCollected)
  }

  private[hold] def enqueue(
      coordinator: Coordinator,
      session: String,
      name: String,
      outcome: Outcome
  ): Unit = waiting.add(Released(coordinator, session, name, outcome, System.nanoTime))

  /** Runs `body`, a call of the coordinator, with the holds there that have ended, which the call
    * releases. If it fails, they are released later.
    */
  def releasing[A](coordinator: Coordinator)(body: Seq[Released] => A): A = {
    val (ours, others) = waiting.take().partition(_.coordinator eq coordinator)
    others.foreach(waiting.add)
    try body(ours)
    catch {
      case error: Throwable =>
        ours.foreach(waiting.add)
        throw error
    }
  }

  /** Puts the names of holds that have ended into a request, and how what read under them ended. */
  def describe(released: Seq[Released], body: ObjectNode, field: String): Unit = {
    val names = body.putArray(field)
    released.foreach(hold => names.add(hold.name))
    val now = System.nanoTime
    val ended = body.putArray("ended")
    released.foreach { hold =>
      val node = ended.addObject().put("hold", hold.name)
      node.put("ago_ms", (now - hold.endedNs) / 1000000)
      hold.outcome.describe(node)
    }
  }

  private def send(ended: Seq[Released]): Unit =
    ended.groupBy(hold => (hold.coordinator, hold.session)).foreach {
      case ((coordinator, session), holds) =>
        val body = Json.obj().put("session", session)
        describe(holds, body, "holds")
        try coordinator.call("/v1/release", body)
        catch {
          // The lease ends it later.
          case NonFatal(e) => logDebug("A hold could not be released", e)
        }
    }
}
