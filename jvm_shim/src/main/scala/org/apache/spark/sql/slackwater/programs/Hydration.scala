package org.apache.spark.sql.slackwater.programs

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.{
  Alias,
  Attribute,
  BoundReference,
  Expression,
  UnsafeRow
}
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.QueryExecution
import org.apache.spark.sql.slackwater.arrangements.Batch

/** What a program keeps between ticks. All times are in ms. */
private[slackwater] trait OperatorState {

  /** Fills it by a job of Spark with the contents at `asOf`, which `inputs` have. */
  def fill(session: SparkSession, inputs: Inputs, asOf: Long): Unit

  /** Nothing has changed in it up to `upper` beyond what it has got. */
  def reached(upper: Long): Unit

  /** No tick will begin before `upper`. */
  def committed(upper: Long): Unit

  /** The first time from `from` on at which it makes the output change though no input changes;
    * Long.MaxValue if there is none.
    */
  def nextChange(from: Long): Long

  def close(): Unit
}

/** One arrangement. */
private[slackwater] final class ArrangementState(
    arrangements: Arrangements,
    arrangement: SharedArrangement,
    reader: AnyRef,
    rows: Before => Iterator[(UnsafeRow, UnsafeRow, Long)]
) extends OperatorState {

  override def fill(session: SparkSession, inputs: Inputs, asOf: Long): Unit =
    arrangement.load(asOf)(rows(Before(session, inputs)))

  override def reached(upper: Long): Unit = arrangement.advanceTo(upper)(_ => new Batch)

  override def committed(upper: Long): Unit = arrangement.needs(reader, upper - 1)
  override def nextChange(from: Long): Long = Long.MaxValue
  override def close(): Unit = arrangements.leave(arrangement, reader)
}

/** The snapshots of a view's subplans: each as an analyzed plan, by the number of the node. */
private[slackwater] trait Inputs {
  def snapshot(node: Int): LogicalPlan
}

private[slackwater] object Hydration {

  /** Rows by keys. `keys` and `columns` are over the columns of the node. None: of all keys. */
  def arranged(
      node: Int,
      keys: Seq[Expression],
      nullSafe: IndexedSeq[Boolean],
      columns: Seq[Expression]
  )(before: Before, wanted: Option[WantedKeys]): Iterator[(UnsafeRow, UnsafeRow, Long)] = {
    val plan = rowsOf(node, keys, before.inputs, wanted)
    val both = over(keys ++ columns, plan.output)
    val project = Project(both.map(Alias(_, "field")()), plan)
    val fields = both.zipWithIndex.map { case (e, i) =>
      BoundReference(i, e.dataType, nullable = true)
    }
    val key = new Evaluation(fields.take(keys.size))
    val row = new Evaluation(fields.drop(keys.size))
    execution(before.session, project).executedPlan.executeCollectIterator()._2.flatMap { found =>
      val own = key(found)
      if (Keyed.matches(own, nullSafe)) Some((own, row(found), 1L)) else None
    }
  }

  /** The states of groups: executors accumulate, and what they have is put together here. */
  def reduced(node: Int, reduction: Reduction)(
      before: Before,
      wanted: Option[WantedKeys]
  ): Iterator[(UnsafeRow, UnsafeRow, Long)] = {
    val run = reduction
    val keys = reduction.keys.map(NormalizeFloatingNumbers.normalize)
    val plan = rowsOf(node, keys, before.inputs, wanted)
    val parts = execution(before.session, plan).toRdd
      .mapPartitions(rows => run.states(rows), preservesPartitioning = false)
      .collect()
    val groups = mutable.LinkedHashMap.empty[UnsafeRow, Array[Byte]]
    parts.foreach { case (key, state) =>
      groups.updateWith(key)(known => Some(known.fold(state)(reduction.merged(_, state))))
    }
    val row = GroupAccumulators.stateRow
    groups.iterator.map { case (key, state) => (key, GroupAccumulators.asRow(row, state), 1L) }
  }

  private def rowsOf(
      node: Int,
      keys: Seq[Expression],
      inputs: Inputs,
      wanted: Option[WantedKeys]
  ): LogicalPlan = {
    val plan = inputs.snapshot(node)
    wanted.fold(plan)(_.filtered(plan, over(keys, plan.output)))
  }

  private def over(bound: Seq[Expression], output: Seq[Attribute]): Seq[Expression] =
    bound.map(_.transform { case BoundReference(i, _, _) => output(i) })

  private[programs] def execution(session: SparkSession, plan: LogicalPlan): QueryExecution =
    session.sessionState.executePlan(ExactAggregate.in(plan))
}
