package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Generator, GenericInternalRow, JoinedRow}

/** What an operator did in one tick. */
private[slackwater] final class OperatorMetrics(budget: TickBudget) {
  var emitted = 0L
  var lookedUp = 0L
  var nanos = 0L

  def found(): Unit = {
    lookedUp += 1
    budget.visit()
  }
}

/** A tick that runs: its interval, and what each operator of the program has emitted in it.
  *
  * @param deltas
  *   the updates of the collections, by the number of the operator that reads them
  * @param before
  *   where rows are read that no arrangement keeps
  */
private[slackwater] final class TickContext(
    val lower: Long,
    val upper: Long,
    size: Int,
    val deltas: Int => Updates,
    val budget: TickBudget,
    val before: Option[Before]
) {
  private val results = new Array[Updates](size)
  val metrics: IndexedSeq[OperatorMetrics] = IndexedSeq.fill(size)(new OperatorMetrics(budget))

  def apply(operator: Int): Updates = results(operator)
  def update(operator: Int, updates: Updates): Unit = results(operator) = updates

  /** Nobody reads what the operator has emitted any more. */
  def forget(operator: Int): Unit = {
    // A union of one passes on what another operator has emitted.
    if (results.count(_ eq results(operator)) == 1) results(operator).giveBack()
    results(operator) = Updates.none
  }
}

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

  /** Whether nothing has changed, so that nothing comes of it. */
  def isIdle(tick: TickContext): Boolean =
    inputs.nonEmpty && inputs.forall(tick(_).isEmpty)
}

/** The updates of a collection, which a tick is given for the operator with this number. */
private[slackwater] final class Delta(number: Int) extends Operator {
  override def inputs: Seq[Int] = Nil
  override def run(tick: TickContext, metrics: OperatorMetrics): Updates = tick.deltas(number)
}

/** What never changes. */
private[slackwater] object Unchanging extends Operator {
  override def inputs: Seq[Int] = Nil
  override def run(tick: TickContext, metrics: OperatorMetrics): Updates = Updates.none
}

private[slackwater] final class MapRows(in: Int, project: Evaluation) extends Operator {
  override def inputs: Seq[Int] = Seq(in)
  override def run(tick: TickContext, metrics: OperatorMetrics): Updates = {
    val out = new Updates(tick.budget)
    tick(in).foreach((row, time, diff) => out.add(project(row).copy(), time, diff))
    // What changes in columns that are left out is no change; rows that are equal now come once.
    out.consolidated
  }
}

private[slackwater] final class FilterRows(in: Int, condition: Condition) extends Operator {
  override def inputs: Seq[Int] = Seq(in)
  override def run(tick: TickContext, metrics: OperatorMetrics): Updates = {
    val out = new Updates(tick.budget)
    tick(in).foreach((row, time, diff) => if (condition(row)) out.add(row, time, diff))
    out
  }
}

/** Each row once for each of the projections. */
private[slackwater] final class ExpandRows(in: Int, projections: Seq[Evaluation]) extends Operator {
  override def inputs: Seq[Int] = Seq(in)
  override def run(tick: TickContext, metrics: OperatorMetrics): Updates = {
    val out = new Updates(tick.budget)
    tick(in).foreach { (row, time, diff) =>
      projections.foreach(project => out.add(project(row).copy(), time, diff))
    }
    out
  }
}

/** Each row once for each row that the generator makes of it; `outer`: at least once.
  *
  * @param project
  *   over the row, followed by the `width` generated columns
  */
private[slackwater] final class GenerateRows(
    in: Int,
    generator: Generator,
    outer: Boolean,
    width: Int,
    project: Evaluation
) extends Operator {
  private val nothing = new GenericInternalRow(width)
  private val joined = new JoinedRow

  override def inputs: Seq[Int] = Seq(in)
  override def run(tick: TickContext, metrics: OperatorMetrics): Updates = {
    val out = new Updates(tick.budget)
    tick(in).foreach { (row, time, diff) =>
      def emit(made: InternalRow): Unit =
        out.add(project(joined(row, made)).copy(), time, diff)
      val made = generator.eval(row).iterator
      if (outer && made.isEmpty) emit(nothing) else made.foreach(emit)
    }
    out
  }
}

private[slackwater] final class UnionAll(override val inputs: Seq[Int]) extends Operator {
  override def run(tick: TickContext, metrics: OperatorMetrics): Updates = {
    val changed = inputs.map(tick(_)).filterNot(_.isEmpty)
    if (changed.size <= 1) changed.headOption.getOrElse(Updates.none)
    else {
      val out = new Updates(tick.budget)
      changed.foreach(_.foreach((row, time, diff) => out.add(row, time, diff)))
      out
    }
  }
}
