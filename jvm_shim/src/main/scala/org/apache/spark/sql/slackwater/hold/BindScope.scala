package org.apache.spark.sql.slackwater.hold

import scala.collection.mutable.ArrayBuffer

/** What the binds of one thread belong to, while it writes or runs a query of the coordinator's. */
private[slackwater] final class BindScope(val writeTargets: Seq[String]) {
  private val adopted = ArrayBuffer.empty[Hold]
  def adopt(hold: Hold): Unit = adopted += hold
  def holds: Seq[Hold] = adopted.toSeq
}

private[slackwater] object BindScope {
  private val open = new ThreadLocal[BindScope]

  def current: Option[BindScope] = Option(open.get)

  /** Runs `body`; the binds in it give their holds to `scope`. */
  def within[A](scope: BindScope)(body: => A): A = {
    val outer = open.get
    open.set(scope)
    try body
    finally if (outer == null) open.remove() else open.set(outer)
  }
}
