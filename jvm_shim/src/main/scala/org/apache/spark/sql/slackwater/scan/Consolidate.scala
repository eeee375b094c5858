package org.apache.spark.sql.slackwater.scan

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.{First, Sum}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.slackwater.protocol.Wire
import org.apache.spark.sql.slackwater.scan.datasources.PartFile
import org.apache.spark.sql.slackwater.values.{Comparable, Keys}
import org.apache.spark.sql.types._

/** Rows out of updates: each row as often as its diffs sum up to. */
private[slackwater] object Consolidate {

  /** More retracted rows than this are cheaper to consolidate with everything else. */
  private val CandidateLimit = 10000

  private val OneTaskFiles = 4
  private val OneTaskUpdates = 100000L
  private val OneTaskBytes = 1L << 20

  /** So many replicas of rows are made without a job. */
  private val LocalReplicas = 65536L

  /** The rows of all parts.
    *
    * Where only few inline updates retract anything, the rows of files that cannot be concerned
    * pass as they are; without files it is done here at once, unless equal rows are very many. A
    * multiplicity below zero is a [[NegativeMultiplicity]].
    */
  def rows(
      sources: Sources,
      uniform: Seq[PartFile],
      embedded: Seq[PartFile],
      until: Option[Long],
      inline: Seq[InlineUpdate]
  ): LogicalPlan = {
    val exact = !Comparable.differInBytes(sources.schema)
    val noFiles = uniform.isEmpty && embedded.isEmpty
    val updates = if (exact) sum(inline) else inline
    val few = updates.iterator.map(u => math.max(0L, u.diff - 1)).sum <= LocalReplicas
    if (exact && noFiles && few) sources.local(repeated(updates), needed = true).head
    else {
      val onlyInserts = embedded.isEmpty && uniform.forall(_.uniform.exists(_.diff == 1L))
      val retracted = updates.filter(_.diff < 0)
      // Rows without columns have no hash, and each of them is concerned.
      val distinct = sources.schema.nonEmpty || retracted.isEmpty
      if (onlyInserts && exact && few && distinct && retracted.size <= CandidateLimit) {
        candidates(sources, uniform, updates, retracted)
      } else {
        val scans = sources.updates(uniform) ++ sources.updates(embedded).map(upTo(_, until))
        val all = scans ++ sources.localUpdates(updates, scans.isEmpty)
        val narrow = all.map(rowsAndDiffs(_, sources.schema.length))
        settled(gathered(PartScan.union(narrow), uniform ++ embedded, updates))
      }
    }
  }

  /** Each row once, with the sum of its diffs, the last column, if it is not zero. */
  def updates(plan: LogicalPlan): LogicalPlan = {
    val sums = summed(plan)
    Filter(Not(EqualTo(sums.output.last, Literal(0L))), sums)
  }

  private def sum(updates: Seq[InlineUpdate]): Seq[InlineUpdate] = {
    val sums = mutable.LinkedHashMap.empty[UnsafeRow, Long]
    updates.foreach(u => sums.update(u.row, sums.getOrElse(u.row, 0L) + u.diff))
    sums.iterator.collect { case (row, diff) if diff != 0 => InlineUpdate(row, 0L, diff) }.toSeq
  }

  /** Each row as often as its diff says. */
  private[scan] def repeated(updates: Seq[InlineUpdate]): Seq[UnsafeRow] =
    updates.flatMap { u =>
      if (u.diff < 0) throw NegativeMultiplicity("a row of a collection")
      Iterator.fill(Math.toIntExact(u.diff))(u.row)
    }

  /** Consolidates only the rows whose hash a retracted row has. */
  private def candidates(
      sources: Sources,
      files: Seq[PartFile],
      updates: Seq[InlineUpdate],
      retracted: Seq[InlineUpdate]
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
      val narrow = PartScan.union(small.map(rowsAndDiffs(_, sources.schema.length)))
      val rest = settled(gathered(narrow, files, concerned))
      PartScan.union(passing ++ sources.local(repeated(free), needed = false) :+ rest)
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

  /** In one task where that takes less than an exchange between several. */
  private def gathered(
      plan: LogicalPlan,
      files: Seq[PartFile],
      inline: Seq[InlineUpdate]
  ): LogicalPlan = {
    val bytes = files.map(_.status.getLen).sum + inline.map(_.row.getSizeInBytes.toLong).sum
    val little = files.map(_.rows).sum + inline.size <= OneTaskUpdates && bytes <= OneTaskBytes
    if (little && files.size <= OneTaskFiles) Repartition(1, shuffle = false, plan) else plan
  }

  /** Filters on columns pass through each of these nodes down to the scans. */
  private def settled(updates: LogicalPlan): LogicalPlan = {
    val sums = Consolidate.updates(updates)
    val copy = AttributeReference("copy", BooleanType, nullable = false)()
    val replicas = ReplicateByMultiplicity(sums.output.last)
    Project(sums.output.init, Generate(replicas, Nil, outer = false, None, Seq(copy), sums))
  }

  /** What is equal for the same values alone. */
  private def identity(column: Attribute): Expression =
    if (Comparable.isNeeded(column.dataType)) Keys.bytes(column) else column

  private def summed(updates: LogicalPlan): LogicalPlan = {
    val columns = updates.output.init
    val count = Alias(Sum(updates.output.last).toAggregateExpression(), Wire.DiffColumn)()
    val results = columns.map { c =>
      if (Comparable.isNeeded(c.dataType))
        Alias(First(c, ignoreNulls = false).toAggregateExpression(), c.name)()
      else c
    }
    Aggregate(columns.map(identity), results :+ count, updates)
  }
}
