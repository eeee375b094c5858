package org.apache.spark.sql.slackwater.process

import java.util.concurrent.{Executors, TimeUnit}

import scala.util.Try

/** The line that tells whoever sits before a terminal or a notebook what a statement waits for.
  *
  * It comes after a second, changes each second, and goes when the statement goes on.
  */
private final class WaitLine(asked: () => Option[String]) {
  private var isOver = false
  private var isShown = false

  /** Asks without the lock: a coordinator that hangs must not keep the end of the wait waiting. */
  def look(): Unit = Try(asked()).toOption.flatten.foreach { text =>
    synchronized {
      if (!isOver) {
        Notices.waiting(Some(text))
        isShown = true
      }
    }
  }

  def end(): Unit = synchronized {
    isOver = true
    if (isShown) Notices.waiting(None)
  }
}

private[process] object WaitLine {
  private val pauseMs = 1000L
  private lazy val clock =
    Executors.newSingleThreadScheduledExecutor(Threads.factory("slackwater-waits"))

  /** Runs `body`, and shows meanwhile what `asked` says, if somebody can see it. */
  def during[A](asked: => Option[String])(body: => A): A =
    if (!Notices.areWatched) body
    else {
      val line = new WaitLine(() => asked)
      val looks =
        clock.scheduleWithFixedDelay(() => line.look(), pauseMs, pauseMs, TimeUnit.MILLISECONDS)
      try body
      finally {
        looks.cancel(false)
        line.end()
      }
    }
}
