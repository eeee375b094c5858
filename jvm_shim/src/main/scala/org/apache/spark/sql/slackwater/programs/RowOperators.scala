package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Generator, GenericInternalRow, JoinedRow}

private[slackwater] final class MapRows(in: Int, project: Evaluation) extends Operator {
  override def inputs: Seq[Int] = Seq(in)
  override def isLinear: Boolean = true
  override def run(tick: TickContext, metrics: OperatorMetrics): Updates = {
    val out = new Updates(tick.budget)
    tick(in).foreach((row, time, diff) => out.add(project(row).copy(), time, diff))
    // What changes in columns that are left out is no change; rows that are equal now come once.
    out.consolidated
  }
}

private[slackwater] final class FilterRows(in: Int, condition: Condition) extends Operator {
  override def inputs: Seq[Int] = Seq(in)
  override def isLinear: Boolean = true
  override def run(tick: TickContext, metrics: OperatorMetrics): Updates = {
    val out = new Updates(tick.budget)
    tick(in).foreach((row, time, diff) => if (condition(row)) out.add(row, time, diff))
    out
  }
}

/** Each row once for each of the projections. */
private[slackwater] final class ExpandRows(in: Int, projections: Seq[Evaluation]) extends Operator {
  override def inputs: Seq[Int] = Seq(in)
  override def isLinear: Boolean = true
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
  override def isLinear: Boolean = true
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
  override def isLinear: Boolean = true
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
