package org.apache.spark.sql.slackwater.programs

import scala.collection.mutable

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  Attribute,
  AttributeReference,
  BoundReference,
  GenericInternalRow,
  JoinedRow,
  NamedExpression,
  UnsafeProjection,
  UnsafeRow,
  WindowSpecDefinition
}
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, LogicalPlan, Window}
import org.apache.spark.sql.slackwater.scan.NegativeMultiplicity
import org.apache.spark.sql.slackwater.scan.logical.SlotRows
import org.apache.spark.sql.types.{LongType, StructField, StructType}

/** Runs a plan over the rows of slots, often. */
private[slackwater] trait Compiled {
  def run(slots: scala.collection.Map[String, () => Iterator[InternalRow]]): Seq[UnsafeRow]
}

/** An operator on groups, as Spark's own operator on many groups at many times at once: each group
  * at each time has a tag, which is one more column to group by.
  *
  * @param tagged
  *   the operator over a slot; both have the tag as their first column
  * @param ofNothing
  *   the row of a group without rows, if it has one
  */
private[slackwater] final case class Tagged(tagged: LogicalPlan, ofNothing: Option[LogicalPlan])

private[slackwater] object Tagged {
  val slot = "recomputed"

  /** Of the operator `plan`, whose child is left out. */
  def of(plan: LogicalPlan): Tagged = {
    val tag = AttributeReference("tag", LongType, nullable = false)()
    plan match {
      case whole: Aggregate =>
        val columns = whole.child.output.map(asReference)
        val rows = SlotRows(slot, tag +: columns)
        val grouped = Aggregate(
          tag +: whole.groupingExpressions,
          tag +: whole.aggregateExpressions,
          rows
        )
        val global = Option.when(whole.groupingExpressions.isEmpty)(
          whole.copy(child = SlotRows(slot, columns))
        )
        Tagged(ExactAggregate.in(grouped), global.map(ExactAggregate.in))
      case whole: Window =>
        val partition = tag +: whole.partitionSpec
        val rows = SlotRows(slot, tag +: whole.child.output.map(asReference))
        val functions = whole.windowExpressions.map(_.transform { case spec: WindowSpecDefinition =>
          spec.copy(partitionSpec = partition)
        }.asInstanceOf[NamedExpression])
        val windowed =
          whole.copy(windowExpressions = functions, partitionSpec = partition, child = rows)
        Tagged(ExactAggregate.in(windowed), None)
      case other => throw new IllegalStateException(s"${other.nodeName} is not regrouped")
    }
  }

  private def asReference(a: Attribute): AttributeReference =
    AttributeReference(a.name, a.dataType, nullable = true)(a.exprId, a.qualifier)
}

/** Groups that are computed anew, by Spark's operator, from all of their rows: those that changed,
  * at each time of a change.
  *
  * The promise of `Reduce`, for functions that cannot take a row away, and for windows, which give
  * many rows for a group.
  *
  * @param restore
  *   over the keys and the arranged columns: a row of the input
  * @param once
  *   whether it makes no difference how often a row is there
  */
private[slackwater] final class ReduceByRecompute(
    in: Int,
    rows: Arranged,
    keys: Evaluation,
    restore: Evaluation,
    input: StructType,
    output: StructType,
    once: Boolean,
    grouped: Compiled,
    ofNothing: => Option[UnsafeRow]
) extends Operator {
  import ReduceByRecompute._

  private val entry = new JoinedRow
  private lazy val nothing = ofNothing
  private val tagging = UnsafeProjection.create(StructType(tag +: input.fields))
  private val untagging = UnsafeProjection.create(output.fields.toSeq.zipWithIndex.map {
    case (field, i) => BoundReference(i + 1, field.dataType, nullable = true)
  })

  override def inputs: Seq[Int] = Seq(in)
  override def mode: String = rows.mode

  override def run(tick: TickContext, metrics: OperatorMetrics): Updates = {
    val out = new Updates(tick.budget)
    val stages = mutable.ArrayBuffer.empty[Stage]
    val contents = mutable.ArrayBuffer.empty[Rows]
    val groups = changed(tick(in))
    rows.want(tick)(visit => groups.foreach { case (key, _) => visit(key) })
    groups.foreach { case (key, times) =>
      val differing = versions(key, times, tick, metrics)
      // A group whose rows stay as they were is not computed.
      if (differing.size > 1) differing.indices.foreach { i =>
        stages += Stage(differing(i)._1, differing.lift(i + 1).flatMap(_._1))
        contents += differing(i)._2
      }
    }
    emit(stages, contents, tick.budget, out)
    out.consolidated
  }

  /** The rows of a group before the interval, and from each time on at which they differ. */
  private def versions(
      key: UnsafeRow,
      times: collection.Set[Long],
      tick: TickContext,
      metrics: OperatorMetrics
  ): collection.IndexedSeq[(Option[Long], Rows)] = {
    val known = updatesOf(key, tick.upper, metrics, tick.budget)
    val found = mutable.ArrayBuffer[(Option[Long], Rows)](None -> present(known, tick.lower))
    times.foreach { time =>
      val rows = present(known, time + 1)
      if (differ(found.last._2, rows)) found += Some(time) -> rows
    }
    found
  }

  private def differ(some: Rows, others: Rows): Boolean =
    if (once) some.keySet != others.keySet else some != others

  private def changed(updates: Updates): ByKey[mutable.TreeSet[Long]] = {
    val found = new ByKey(mutable.TreeSet.empty[Long])
    updates.foreach((row, time, _) => found(keys(row)) += time)
    found
  }

  private def updatesOf(
      key: UnsafeRow,
      below: Long,
      metrics: OperatorMetrics,
      budget: TickBudget
  ): mutable.ArrayBuffer[(UnsafeRow, Long, Long)] = {
    val found = mutable.ArrayBuffer.empty[(UnsafeRow, Long, Long)]
    rows.lookup(key, below, metrics) { (row, time, diff) =>
      val restored = restore(entry(key, row)).copy()
      budget.take(restored.getSizeInBytes + BesideRow)
      found += ((restored, time, diff))
    }
    found
  }

  /** The rows before the time `below`, each with how often it is there. */
  private def present(updates: collection.Seq[(UnsafeRow, Long, Long)], below: Long): Rows = {
    val sums = mutable.LinkedHashMap.empty[UnsafeRow, Long]
    updates.foreach { case (row, time, diff) =>
      if (time < below) sums.update(row, Math.addExact(sums.getOrElse(row, 0L), diff))
    }
    sums.values.find(_ < 0).foreach(_ => throw NegativeMultiplicity("a row of a group"))
    sums.filterInPlace((_, count) => count > 0)
  }

  private def emit(
      stages: collection.IndexedSeq[Stage],
      contents: collection.IndexedSeq[Rows],
      budget: TickBudget,
      out: Updates
  ): Unit = {
    def stage(at: Int, row: UnsafeRow): Unit = {
      stages(at).from.foreach(out.add(row, _, 1L))
      stages(at).until.foreach(out.add(row, _, -1L))
    }
    if (contents.exists(_.nonEmpty)) {
      var held = 0L
      def taken(row: UnsafeRow): UnsafeRow = {
        budget.take(row.getSizeInBytes)
        held += row.getSizeInBytes
        row
      }
      grouped.run(Map(Tagged.slot -> (() => tagged(contents).map(taken)))).foreach { row =>
        stage(row.getLong(0).toInt, untagging(row).copy())
      }
      budget.giveBack(held)
    }
    nothing.foreach { row =>
      contents.indices.foreach(at => if (contents(at).isEmpty) stage(at, row))
    }
  }

  private def tagged(contents: collection.IndexedSeq[Rows]): Iterator[UnsafeRow] = {
    val joined = new JoinedRow
    for {
      at <- contents.indices.iterator
      tag = new GenericInternalRow(Array[Any](at.toLong))
      (row, count) <- contents(at).iterator
      copy = tagging(joined(tag, row)).copy()
      _ <- Iterator.range(0L, if (once) 1L else count, 1L)
    } yield copy
  }
}

private object ReduceByRecompute {

  /** The objects of a row, and the places in which it is counted. */
  val BesideRow = 128L

  /** Each with how often it is there. */
  type Rows = collection.Map[UnsafeRow, Long]

  /** A group from a time on, until the next change of it, if there is one in the interval. */
  final case class Stage(from: Option[Long], until: Option[Long])

  val tag: StructField = StructField("tag", LongType, nullable = false)
}
