package org.apache.spark.sql.slackwater.programs

import scala.collection.mutable

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  Expression,
  JoinedRow,
  UnsafeProjection,
  UnsafeRow
}
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers
import org.apache.spark.sql.slackwater.arrangements.Batch
import org.apache.spark.sql.slackwater.scan.NegativeMultiplicity

/** The groups of an aggregate and what is accumulated of each. Serializable.
  *
  * The state of a group is one row: how many rows the group has, then the accumulators, as bytes
  * that are equal for equal states.
  *
  * @param keys
  *   over the columns of the aggregate's input
  */
private[slackwater] final case class Reduction(
    keys: Seq[Expression],
    aggregates: Seq[Accumulated]
) {

  /** Over the input: the group. */
  def keysOf: Evaluation = new Evaluation(keys.map(NormalizeFloatingNumbers.normalize))

  /** Over the input: what each aggregate takes in. */
  def inputsOf: Evaluation = new Evaluation(aggregates.map(_.input))

  def start(): Array[Accumulator] = aggregates.map(_.start()).toArray

  /** The states of the groups of some rows. A group may come several times, each time with the state
    * of other rows: what is held at once does not grow with the number of groups.
    */
  def states(rows: Iterator[InternalRow]): Iterator[(UnsafeRow, Array[Byte])] = {
    val keyOf = UnsafeProjection.create(keys.map(NormalizeFloatingNumbers.normalize))
    val inputOf = UnsafeProjection.create(aggregates.map(_.input))
    val most = Reduction.MostHeld / (1 + aggregates.size)
    Iterator
      .continually {
        val groups = new ByKey(new GroupAccumulators(start()))
        while (rows.hasNext && groups.size < most) {
          val row = rows.next()
          groups(keyOf(row)).add(inputOf(row), 1L)
        }
        groups
      }
      .takeWhile(_.size > 0)
      .flatMap(_.iterator.map { case (key, group) => (key, group.state) })
  }

  /** States of the same group, of different rows, as one. */
  def merged(one: Array[Byte], other: Array[Byte]): Array[Byte] = {
    val (left, right) = (GroupAccumulators.of(this, one), GroupAccumulators.of(this, other))
    left.merge(right)
    left.state
  }
}

private[slackwater] object Reduction {

  /** A task holds so many groups, and accumulators of them, at once. */
  private val MostHeld = 200000
}

/** Groups, of which those that changed are read, and written anew at each time of a change.
  *
  * A group is there while it has rows; the one group without keys always is.
  *
  * @param results
  *   over the keys and the results of the aggregates
  */
private[slackwater] final class Reduce(
    in: Int,
    reduction: Reduction,
    states: Index,
    results: Evaluation
) extends Operator {
  import Reduce._

  private val keyOf = reduction.keysOf
  private val inputOf = reduction.inputsOf
  private val stateRow = GroupAccumulators.stateRow
  private val always = reduction.keys.isEmpty
  private val joined = new JoinedRow

  override def inputs: Seq[Int] = Seq(in)
  override def mode: String = states.mode

  override def run(tick: TickContext, metrics: OperatorMetrics): Updates = {
    val out = new Updates(tick.budget)
    val moves = mutable.ArrayBuffer.empty[(UnsafeRow, Array[Byte], Long, Long)]
    val groups = changes(tick)
    states.want(tick)(visit => groups.foreach { case (key, _) => visit(key) })
    val covered = states.upper
    groups.foreach { case (key, byTime) =>
      val group = before(key, tick.lower, metrics)
      var state = Option.when(group.rows != 0)(group.state)
      var row = result(key, group)
      byTime.foreach { case (time, inputs) =>
        inputs.foreach((input, _, diff) => group.add(input, diff))
        if (group.rows < 0) throw NegativeMultiplicity("a group")
        val newState = Option.when(group.rows != 0)(group.state)
        val newRow = result(key, group)
        if (newRow != row) {
          row.foreach(out.add(_, time, -1L))
          newRow.foreach(out.add(_, time, 1L))
        }
        if (time >= covered) {
          state.foreach(bytes => moves += ((key, bytes, time, -1L)))
          newState.foreach(bytes => moves += ((key, bytes, time, 1L)))
        }
        state = newState
        row = newRow
      }
    }
    // Another program may have moved them on meanwhile.
    states.advance(tick) { from =>
      val batch = new Batch
      moves.foreach { case (key, bytes, time, diff) =>
        if (time >= from) batch.add(key, asRow(bytes), time, diff)
      }
      batch
    }
    out
  }

  /** The inputs of the aggregates by group and time, in the order of time. */
  private def changes(tick: TickContext): Changes = {
    val found: Changes = new ByKey(mutable.TreeMap.empty[Long, Updates])
    tick(in).foreach { (row, time, diff) =>
      found(keyOf(row))
        .getOrElseUpdate(time, new Updates(tick.budget))
        .add(inputOf(row).copy(), time, diff)
    }
    found
  }

  private def before(key: UnsafeRow, lower: Long, metrics: OperatorMetrics): GroupAccumulators = {
    val sums = mutable.HashMap.empty[UnsafeRow, Long]
    states.lookup(
      key,
      lower,
      (row, _, diff) => {
        metrics.found()
        val sum = sums.getOrElse(row, 0L) + diff
        sums.put(row.copy(), sum)
      }
    )
    sums.filter(_._2 != 0).toSeq match {
      case Seq()         => new GroupAccumulators(reduction.start())
      case Seq((row, 1)) => GroupAccumulators.of(reduction, row.getBinary(0))
      case other         =>
        throw new IllegalStateException(s"a group has ${other.size} states: ${other.map(_._2)}")
    }
  }

  private def result(key: UnsafeRow, group: GroupAccumulators): Option[UnsafeRow] =
    Option.when(always || group.rows != 0)(results(joined(key, group.results)).copy())

  private def asRow(state: Array[Byte]): UnsafeRow = GroupAccumulators.asRow(stateRow, state)
}

private object Reduce {
  type Changes = ByKey[mutable.TreeMap[Long, Updates]]
}
