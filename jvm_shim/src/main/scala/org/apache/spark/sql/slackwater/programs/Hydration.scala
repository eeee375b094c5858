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
import org.apache.spark.sql.slackwater.arrangements.Arrangement

/** The snapshots of a view's subplans: each as an analyzed plan, by the number of the node. */
private[slackwater] trait Inputs {
  def snapshot(node: Int): LogicalPlan
}

/** What an arrangement is loaded with, to be closed when it is.
  *
  * @param rows
  *   keys, rows and multiplicities, valid until the next ones
  * @param rangeBits
  *   they come in the order of so many first bits of the hashes of keys
  */
private[slackwater] final class Contents(
    val rows: Iterator[(UnsafeRow, UnsafeRow, Long)],
    val rangeBits: Int,
    release: () => Unit
) extends AutoCloseable {
  override def close(): Unit = release()
}

private[slackwater] object Contents {
  def of(rows: Iterator[(UnsafeRow, UnsafeRow, Long)]): Contents = new Contents(rows, 0, () => ())
}

private[slackwater] object Hydration {

  /** Rows by keys. `keys` and `columns` are over the columns of the node. None: of all keys. */
  def arranged(
      node: Int,
      keys: Seq[Expression],
      nullSafe: IndexedSeq[Boolean],
      columns: Seq[Expression]
  )(before: Before, wanted: Option[WantedKeys]): Contents = {
    val plan = rowsOf(node, keys, before.inputs, wanted)
    val both = over(keys ++ columns, plan.output)
    val project = Project(both.map(Alias(_, "field")()), plan)
    val fields = both.zipWithIndex.map { case (e, i) =>
      BoundReference(i, e.dataType, nullable = true)
    }
    val (keyFields, rowFields) = fields.splitAt(keys.size)
    val found = execution(before.session, project).executedPlan
    val made = TaskRows.by(found, keys.size, columns.size) { rows =>
      val key = new Evaluation(keyFields)
      val row = new Evaluation(rowFields)
      rows.map(each => (key(each), row(each))).filter { case (own, _) =>
        Keyed.matches(own, nullSafe)
      }
    }
    val rows = made.ranges.flatMap(_.rows).map { case (key, row) => (key, row, 1L) }
    new Contents(rows, made.rangeBits, () => made.close())
  }

  /** The states of groups: executors accumulate, and what they have is put together here, a part of
    * the groups after the other.
    */
  def reduced(node: Int, reduction: Reduction)(
      before: Before,
      wanted: Option[WantedKeys]
  ): Contents = {
    val keys = reduction.keys.map(NormalizeFloatingNumbers.normalize)
    val plan = rowsOf(node, keys, before.inputs, wanted)
    val found = execution(before.session, plan).executedPlan
    val made = TaskRows.by(found, keys.size, 1) { rows =>
      val stateRow = GroupAccumulators.stateRow
      val states = reduction.states(rows)
      states.map { case (key, state) => (key, GroupAccumulators.asRow(stateRow, state)) }
    }
    val rows = made.ranges.flatMap { range =>
      val turns = 1 << math.min(MostTurnBits, bitsOf(range.size / MostGroupBytes))
      (0 until turns).iterator.flatMap(turn => groupsOf(range, turn, turns, reduction))
    }
    new Contents(rows, made.rangeBits, () => made.close())
  }

  /** Of the range the groups whose turn it is. */
  private def groupsOf(
      range: TaskRows#HashRange,
      turn: Int,
      turns: Int,
      reduction: Reduction
  ): Iterator[(UnsafeRow, UnsafeRow, Long)] = {
    val groups = mutable.HashMap.empty[UnsafeRow, Array[Byte]]
    range.rows.foreach { case (key, row) =>
      if ((Arrangement.hash(key) & (turns - 1)) == turn) {
        val state = row.getBinary(0)
        groups.get(key) match {
          case Some(known) => groups.update(key, reduction.merged(known, state))
          case None        => groups.update(key.copy(), state)
        }
      }
    }
    val row = GroupAccumulators.stateRow
    groups.iterator.map { case (key, state) => (key, GroupAccumulators.asRow(row, state), 1L) }
  }

  private def bitsOf(number: Long): Int = 64 - java.lang.Long.numberOfLeadingZeros(number)

  /** So many bytes of states are put together at once. Each takes a few times as much in the heap. */
  private def MostGroupBytes: Long = math.max(4L << 20, Runtime.getRuntime.maxMemory / 128)

  /** More turns than this read too often what they read. */
  private val MostTurnBits = 10

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
