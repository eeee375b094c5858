package org.apache.spark.sql.slackwater.plans

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicLong

/** Which coordinator of which environment works with a plan or a program. */
private[slackwater] final case class Owner(environment: String, coordinator: String) {

  /** Whether this one was replaced by `other`, and has ended. */
  def isReplacedBy(other: Owner): Boolean =
    environment == other.environment && coordinator != other.coordinator
}

/** The plans that coordinators work with, until they say that they do not need them any more, or have
  * ended. Thread-safe.
  */
private[slackwater] final class AnalyzedViews {
  private val kept = new ConcurrentHashMap[String, (Owner, AnalyzedView)]()
  private val numbers = new AtomicLong

  /** Keeps a plan and gives it an id, which is never used again. */
  def keep(view: AnalyzedView, owner: Owner): String = {
    kept.values.removeIf(_._1.isReplacedBy(owner))
    val id = s"plan-${numbers.incrementAndGet()}"
    kept.put(id, (owner, view))
    id
  }

  /** Raises NoSuchElementException for an id that is forgotten. */
  def get(id: String): AnalyzedView = Option(kept.get(id)).fold(
    throw new NoSuchElementException(s"there is no $id")
  )(_._2)

  def forget(id: String): Unit = {
    val _ = kept.remove(id)
  }
}
