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
