package org.apache.spark.sql.slackwater.plans

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicLong

/** The plans that the coordinator works with, until it says that it does not need them any more. */
private[slackwater] final class AnalyzedViews {
  private val kept = new ConcurrentHashMap[String, AnalyzedView]()
  private val numbers = new AtomicLong

  /** Keeps a plan and gives it an id, which is never used again. */
  def keep(view: AnalyzedView): String = {
    val id = s"plan-${numbers.incrementAndGet()}"
    kept.put(id, view)
    id
  }

  /** Raises NoSuchElementException for an id that is forgotten. */
  def get(id: String): AnalyzedView = Option(kept.get(id)).getOrElse(
    throw new NoSuchElementException(s"there is no $id")
  )

  def forget(id: String): Unit = {
    val _ = kept.remove(id)
  }
}
