package org.apache.spark.sql.slackwater.process

import java.util.concurrent.{Executors, ScheduledFuture, TimeUnit}

import scala.util.Try

/** The line that tells whoever sits before a terminal or a notebook what a statement waits for.
  *
  * It comes after a second, changes each second, and goes when the statement goes on.
  */
private[process] final class WaitLine private (asked: () => Option[String]) {
  private var isOver = false
  private var isShown = false
  private val looks: ScheduledFuture[_] =
    WaitLine.clock.scheduleWithFixedDelay(
      () => look(),
      WaitLine.pauseMs,
      WaitLine.pauseMs,
      TimeUnit.MILLISECONDS
    )

  /** Asks without the lock: a coordinator that hangs must not keep the end of the wait waiting. */
  private def look(): Unit = Try(asked()).toOption.flatten.foreach { text =>
    synchronized {
      if (!isOver && Notices.areWatched) {
        Notices.waiting(Some(text))
        isShown = true
      }
    }
  }

  def end(): Unit = {
    val _ = looks.cancel(false)
    synchronized {
      isOver = true
      if (isShown) Notices.waiting(None)
    }
  }
}

private[process] object WaitLine {
  private val pauseMs = 1000L
  private lazy val clock =
    Executors.newSingleThreadScheduledExecutor(Threads.factory("slackwater-waits"))

  /** A line that shows what `asked` says, which is asked also if nobody can see it. */
  def begin(asked: => Option[String]): WaitLine = new WaitLine(() => asked)

  /** Runs `body`, and shows meanwhile what `asked` says, if somebody can see it. */
  def during[A](asked: => Option[String])(body: => A): A =
    if (!Notices.areWatched) body
    else {
      val line = begin(asked)
      try body
      finally line.end()
    }

  /** Runs `body` when the looks that were begun are over. */
  def afterwards(body: => Unit): Unit = clock.execute(() => body)
}
