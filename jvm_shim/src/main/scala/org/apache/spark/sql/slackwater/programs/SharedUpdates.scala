package org.apache.spark.sql.slackwater.programs

import scala.collection.mutable

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan

/** What a step computes: the changes of a plan over collections. Equal identities have equal changes
  * at each time, whichever program computes them.
  */
private[slackwater] final case class StepIdentity(
    environment: String,
    settings: Map[String, String],
    plan: LogicalPlan
)

/** The updates that steps of several programs have in common: the first that computes them gives them
  * to the others. Thread-safe.
  */
private[slackwater] final class SharedUpdates {
  private val known = mutable.HashMap.empty[StepIdentity, SharedStep]

  /** The step for one more program, which is to `leave` it. */
  def join(identity: StepIdentity): SharedStep = synchronized {
    val step = known.getOrElseUpdate(identity, new SharedStep)
    step.programs += 1
    step
  }

  def leave(identity: StepIdentity): Unit = synchronized {
    known.get(identity).foreach { step =>
      step.programs -= 1
      if (step.programs == 0) known.remove(identity)
    }
  }
}

/** The last updates that programs have computed of one step. Thread-safe.
  *
  * It keeps few of them, and for nobody in particular: a program that does not find what it needs
  * computes it, as it would without the others.
  */
private[slackwater] final class SharedStep {
  import SharedStep._

  @volatile private[programs] var programs = 0
  private val parts = mutable.ArrayDeque.empty[Part]
  private var bytes = 0L

  /** A program has computed all updates of `[lower, upper)`, in ms. They do not change any more. */
  def take(lower: Long, upper: Long, updates: Updates): Unit = if (programs > 1) synchronized {
    val reached = parts.lastOption.fold(lower)(_.upper)
    if (reached < lower) clear()
    if (reached < upper) {
      val part = Part(math.max(lower, parts.lastOption.fold(lower)(_.upper)), upper, updates)
      parts += part
      bytes += part.bytes
      while (bytes > Most || parts.size > MostParts) bytes -= parts.removeHead().bytes
    }
  }

  /** The updates at all times from `first` to `last`, held by `budget`; None: they are not there, or
    * not any more.
    */
  def updates(first: Long, last: Long, budget: TickBudget): Option[Updates] = synchronized {
    if (!parts.headOption.exists(_.lower <= first) || !parts.lastOption.exists(_.upper > last))
      None
    else {
      val found = new Updates(budget)
      parts.foreach { part =>
        if (part.lower <= last && part.upper > first)
          part.updates.foreach { (row, time, diff) =>
            if (time >= part.lower && time >= first && time <= last) found.add(row, time, diff)
          }
      }
      Some(found)
    }
  }

  private def clear(): Unit = {
    parts.clear()
    bytes = 0
  }
}

private[slackwater] object SharedStep {

  /** The updates at the times `[lower, upper)`, among those of `updates`. */
  private final case class Part(lower: Long, upper: Long, updates: Updates) {
    val bytes: Long = updates.rowBytes
  }

  /** So many bytes of rows stay in the heap for others. */
  private val Most = math.max(1L << 20, Runtime.getRuntime.maxMemory / 256)

  /** So many ticks back others may be. */
  private val MostParts = 64
}

/** A step of a program that other programs have too.
  *
  * @param number
  *   of the step
  * @param below
  *   the steps that nothing else in the program needs
  * @param sources
  *   the steps that read the collections which its updates follow from
  * @param states
  *   what moves on in `below`
  */
private[slackwater] final case class ProgramPart(
    number: Int,
    below: Set[Int],
    sources: Seq[Int],
    states: Seq[ArrangementReader],
    step: SharedStep
) {

  /** The updates of the step in the tick, if another program has computed them; then also all that is
    * kept below the step has what it gets in the tick.
    */
  def computed(tick: TickContext): Option[Updates] = {
    val (first, last) = ProgramPart.times(sources.map(tick.deltas))
    if (first > last || states.exists(_.upper <= last)) None
    else step.updates(first, last, tick.budget)
  }
}

private[slackwater] object ProgramPart {

  /** The first and the last time of the updates; where there are none, the former is later. */
  private def times(all: Seq[Updates]): (Long, Long) = {
    var (first, last) = (Long.MaxValue, Long.MinValue)
    all.foreach(_.foreach { (_, time, _) =>
      first = math.min(first, time)
      last = math.max(last, time)
    })
    (first, last)
  }
}
