package org.apache.spark.sql.slackwater.scan

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.{First, Sum}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.slackwater.protocol.Wire
import org.apache.spark.sql.types._

/** Rows out of updates: each row as often as its diffs sum up to. */
private[slackwater] object Consolidate {

  /** More retracted rows than this are cheaper to consolidate with everything else. */
  private val CandidateLimit = 10000

  /** So many copies of a row are made at once. */
  private val Batch = 65536L

  /** The rows of all parts.
    *
    * Where only few inline updates retract anything, the rows of files that cannot be concerned
    * pass as they are; without files it is done here at once. `dense`: the columns are only some of
    * the collection's, and equal rows may be very many.
    */
  def rows(
      sources: Sources,
      uniform: Seq[PartFile],
      embedded: Seq[PartFile],
      until: Option[Long],
      inline: Seq[InlineUpdate],
      dense: Boolean
  ): LogicalPlan = {
    val exact = !sources.schema.existsRecursively(t => inexact(t))
    val noFiles = uniform.isEmpty && embedded.isEmpty
    if (exact && noFiles) local(sources, sum(inline))
    else {
      val onlyInserts = embedded.isEmpty && uniform.forall(_.uniform.exists(_.diff == 1L))
      val updates = if (exact) sum(inline) else inline
      val retracted = updates.filter(_.diff < 0)
      // Rows without columns have no hash, and each of them is concerned.
      val distinct = sources.schema.nonEmpty || retracted.isEmpty
      if (onlyInserts && exact && distinct && retracted.size <= CandidateLimit) {
        candidates(sources, uniform, updates, retracted, dense)
      } else {
        val scans = sources.updates(uniform) ++ sources.updates(embedded).map(upTo(_, until))
        val all = scans ++ sources.localUpdates(updates, scans.isEmpty)
        shuffled(PartScan.union(all.map(rowsAndDiffs(_, sources.schema.length))), dense)
      }
    }
  }

  /** Each row once, with the sum of its diffs, the last column, if it is not zero. */
  def updates(plan: LogicalPlan): LogicalPlan = {
    val sums = summed(plan)
    Filter(Not(EqualTo(sums.output.last, Literal(0L))), sums)
  }

  /** Spark compares values of these types by more than their bytes. */
  private def inexact(dataType: DataType): Boolean = dataType match {
    case FloatType | DoubleType | _: MapType => true
    case other                               => Comparable.isCollated(other)
  }

  private def sum(updates: Seq[InlineUpdate]): Seq[InlineUpdate] = {
    val sums = mutable.LinkedHashMap.empty[UnsafeRow, Long]
    updates.foreach(u => sums.update(u.row, sums.getOrElse(u.row, 0L) + u.diff))
    sums.iterator.collect { case (row, diff) if diff != 0 => InlineUpdate(row, 0L, diff) }.toSeq
  }

  private def local(sources: Sources, updates: Seq[InlineUpdate]): LogicalPlan =
    sources.local(repeated(updates), needed = true).head

  private def repeated(updates: Seq[InlineUpdate]): Seq[UnsafeRow] =
    updates.flatMap(u => Iterator.fill(math.max(0L, u.diff).toInt)(u.row))

  /** Consolidates only the rows whose hash a retracted row has. */
  private def candidates(
      sources: Sources,
      files: Seq[PartFile],
      updates: Seq[InlineUpdate],
      retracted: Seq[InlineUpdate],
      dense: Boolean
  ): LogicalPlan = {
    if (retracted.isEmpty) {
      val scans = sources.rows(files)
      PartScan.union(scans ++ sources.local(repeated(updates), scans.isEmpty))
    } else {
      val hash = hashOf(sources.schema)
      val hashes = retracted.map(u => hash(u.row)).toSet
      val (concerned, free) = updates.partition(u => hashes.contains(hash(u.row)))
      def among(plan: LogicalPlan): Expression =
        InSet(new XxHash64(plan.output.take(sources.schema.length)), hashes.map(h => h: Any))

      val passing = sources.rows(files).map(scan => Filter(Not(among(scan)), scan))
      val suspected = sources.updates(files).map { scan =>
        val columns = scan.output.take(sources.schema.length)
        Filter((likely(columns, retracted).toSeq :+ among(scan)).reduce(And), scan)
      }
      val small = suspected ++ sources.localUpdates(concerned, suspected.isEmpty)
      val settled =
        shuffled(PartScan.union(small.map(rowsAndDiffs(_, sources.schema.length))), dense)
      PartScan.union(passing ++ sources.local(repeated(free), needed = false) :+ settled)
    }
  }

  private def hashOf(schema: StructType): UnsafeRow => Long = {
    val columns = schema.fields.zipWithIndex.map { case (field, i) =>
      BoundReference(i, field.dataType, field.nullable)
    }
    val hash = new XxHash64(columns.toSeq)
    row => hash.eval(row).asInstanceOf[Long]
  }

  /** A condition on one column that Parquet can use to leave out row groups. */
  private def likely(
      columns: Seq[Attribute],
      retracted: Seq[InlineUpdate]
  ): Option[Expression] =
    columns.iterator.zipWithIndex
      .collectFirst {
        case (a, i) if prunable(a.dataType) && retracted.forall(!_.row.isNullAt(i)) => (a, i)
      }
      .map { case (a, i) =>
        InSet(a, retracted.map(u => copied(u.row.get(i, a.dataType))).toSet)
      }

  private def prunable(dataType: DataType): Boolean = dataType match {
    case ByteType | ShortType | IntegerType | LongType | DateType | TimestampType => true
    case StringType                                                               => true
    case _                                                                        => false
  }

  private def copied(value: Any): Any = value match {
    case text: org.apache.spark.unsafe.types.UTF8String => text.clone()
    case other                                          => other
  }

  private def upTo(scan: LogicalPlan, until: Option[Long]): LogicalPlan =
    until.fold(scan) { time =>
      Filter(LessThanOrEqual(PartScan.attribute(scan, Wire.TimeColumn), Literal(time)), scan)
    }

  private def rowsAndDiffs(plan: LogicalPlan, width: Int): LogicalPlan =
    Project(plan.output.take(width) :+ PartScan.attribute(plan, Wire.DiffColumn), plan)

  /** Filters on columns pass through each of these nodes down to the scans. */
  private def shuffled(updates: LogicalPlan, dense: Boolean): LogicalPlan = {
    val sums = summed(updates)
    val count = sums.output.last
    val present = Filter(GreaterThan(count, Literal(0L)), sums)
    val repeated = if (dense) copiedInBatches(present, count) else copiedAtOnce(present, count)
    Project(sums.output.init, repeated)
  }

  private def summed(updates: LogicalPlan): LogicalPlan = {
    val columns = updates.output.init
    val count = Alias(Sum(updates.output.last).toAggregateExpression(), Wire.DiffColumn)()
    val results = columns.map { c =>
      if (Comparable.isNeeded(c.dataType))
        Alias(First(c, ignoreNulls = false).toAggregateExpression(), c.name)()
      else c
    }
    Aggregate(columns.map(Comparable(_)(Cast(_, BinaryType))), results :+ count, updates)
  }

  private def copiedAtOnce(rows: LogicalPlan, count: Expression): LogicalPlan = {
    val copies = ArrayRepeat(Literal(true), Cast(count, IntegerType))
    val copy = AttributeReference("copy", BooleanType, nullable = false)()
    Generate(Explode(copies), Nil, outer = false, None, Seq(copy), rows)
  }

  /** An array of all copies of a row would not fit into memory when they are many millions. */
  private def copiedInBatches(rows: LogicalPlan, count: Expression): LogicalPlan = {
    val last = IntegralDivide(Subtract(count, Literal(1L)), Literal(Batch))
    val batch = AttributeReference("batch", LongType, nullable = false)()
    val numbers = Explode(Sequence(Literal(0L), last, None, Some("UTC")))
    val batches = Generate(numbers, Nil, outer = false, None, Seq(batch), rows)
    val rest = Subtract(count, Multiply(batch, Literal(Batch)))
    copiedAtOnce(batches, Least(Seq(Literal(Batch), rest)))
  }
}
