package org.apache.spark.sql.slackwater.programs

/** One operator: its updates in the interval, out of those of the operators before it.
  *
  * The promise of each: for every t in `[lower, upper)`, what it has emitted up to t is by how much
  * its result at t differs from its result just before `lower`.
  */
private[slackwater] trait Operator {
  def inputs: Seq[Int]
  def run(tick: TickContext, metrics: OperatorMetrics): Updates

  /** What it needs, as people read it: what has changed (`delta`), or also the mode of an index. */
  def mode: String = "delta"

  /** Whether its updates follow from those that it reads alone, whatever was there before. */
  def isLinear: Boolean = false

  /** Whether it changes only as its inputs do. */
  def followsInputs: Boolean = true

  /** Whether nothing has changed, so that nothing comes of it. */
  def isIdle(tick: TickContext): Boolean =
    inputs.nonEmpty && inputs.forall(tick(_).isEmpty)
}

/** The updates of a collection, which a tick is given for the operator with this number. */
private[slackwater] final class Delta(number: Int) extends Operator {
  override def inputs: Seq[Int] = Nil
  override def isLinear: Boolean = true
  override def run(tick: TickContext, metrics: OperatorMetrics): Updates = tick.deltas(number)
}

/** What never changes. */
private[slackwater] object Unchanging extends Operator {
  override def inputs: Seq[Int] = Nil
  override def isLinear: Boolean = true
  override def run(tick: TickContext, metrics: OperatorMetrics): Updates = Updates.none
}
