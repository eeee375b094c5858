package org.apache.spark.sql.slackwater.process

import java.util.concurrent.{ExecutorService, Executors, ThreadFactory}

import org.apache.spark.util.Utils

/** Daemon threads that inherit nothing but where classes are looked for.
  *
  * Spark keeps the active session in an inheritable thread-local: a thread that is started below a
  * user's statement would keep that session alive, and run as it. Since Java 19 such a thread looks
  * for classes among those of the system, where neither this jar nor those of the user are.
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
    thread.setContextClassLoader(Utils.getContextOrSparkClassLoader)
    thread
  }
}
