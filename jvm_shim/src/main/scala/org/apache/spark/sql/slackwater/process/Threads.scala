package org.apache.spark.sql.slackwater.process

import java.util.concurrent.{ExecutorService, Executors, ThreadFactory}

/** Daemon threads that inherit nothing.
  *
  * Spark keeps the active session in an inheritable thread-local: a thread that is started below a
  * user's statement would keep that session alive, and run as it.
  */
private[slackwater] object Threads {

  def factory(name: String): ThreadFactory = body => named(name)(body.run())

  def pool(): ExecutorService = Executors.newCachedThreadPool(factory("slackwater"))

  def start(name: String)(body: => Unit): Thread = {
    val thread = named(name)(body)
    thread.start()
    thread
  }

  private def named(name: String)(body: => Unit): Thread = {
    val thread = new Thread(null, () => body, name, 0, false)
    thread.setDaemon(true)
    thread
  }
}
