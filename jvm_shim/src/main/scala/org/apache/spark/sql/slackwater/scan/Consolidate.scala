package org.apache.spark.sql.slackwater.scan

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.{First, Sum}
import org.apache.spark.sql.catalyst.plans.{JoinType, LeftAnti, LeftSemi}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.slackwater.protocol.Wire
import org.apache.spark.sql.slackwater.scan.datasources.PartFile
import org.apache.spark.sql.slackwater.scan.logical.{ConcernedRows, ConsolidatedRows}
import org.apache.spark.sql.slackwater.values.{Comparable, Keys}
import org.apache.spark.sql.types._

/** Rows out of updates: each row as often as its diffs sum up to. */
private[slackwater] object Consolidate {

  /** More retracted rows than this are cheaper to consolidate with everything else. */
  private val CandidateLimit = 10000

  /** As many of files are sent to all tasks. */
  private val BroadcastLimit = 100000L

  private val OneTaskFiles = 4
  private val OneTaskUpdates = 100000L
  private val OneTaskBytes = 1L << 20

  /** So many replicas of rows are made without a job. */
  private val LocalReplicas = 65536L

  /** The rows of all parts.
    *
    * Where only few updates retract anything, the rows of other files that cannot be concerned pass
    * as they are; without files it is done here at once, unless equal rows are very many. A
    * multiplicity below zero is a [[NegativeMultiplicity]].
    *
    * @param until
    *   later updates, in ms, are left out
    */
  def rows(
      sources: Sources,
      files: Seq[PartFile],
      until: Option[Long],
      inline: Seq[InlineUpdate]
  ): LogicalPlan = {
    val exact = !Comparable.differInBytes(sources.schema)
    val updates = if (exact) sum(inline) else inline
    val few = updates.iterator.map(u => math.max(0L, u.diff - 1)).sum <= LocalReplicas
    val stored = new StoredFiles(sources, files, until)
    if (exact && files.isEmpty && few) sources.local(repeated(updates), needed = true).head
    else {
      val retracted = updates.filter(_.diff < 0)
      // Rows without columns have no hash, and each of them is concerned.
      val distinct =
        sources.schema.nonEmpty || (retracted.isEmpty && stored.retracting.isEmpty)
      val apart = exact && few && distinct && retracted.size <= CandidateLimit
      if (apart && retracted.isEmpty && stored.retracting.isEmpty) {
        val scans = stored.rows(stored.plain)
        PartScan.union(scans ++ sources.local(repeated(updates), scans.isEmpty))
      } else
        ConsolidatedRows {
          if (apart && stored.retracting.isEmpty) candidates(stored, updates, retracted)
          else if (apart && stored.retractsLittle) besides(stored, updates, retracted)
          else {
            val scans = stored.updates(files)
            val all = scans ++ sources.localUpdates(updates, scans.isEmpty)
            val narrow = all.map(rowsAndDiffs(_, sources.schema.length))
            settled(gathered(PartScan.union(narrow), files, updates))
          }
        }
    }
  }

  /** The files of a collection, and what they become up to a time. */
  private final class StoredFiles(
      val sources: Sources,
      files: Seq[PartFile],
      until: Option[Long]
  ) {
    val schema: StructType = sources.schema

    /** In `plain` ones each row is added once. */
    val (plain, retracting) = files.partition(_.isPlain)

    def retractsLittle: Boolean = {
      val rows = retracting.iterator.map(_.rows).sum
      rows <= BroadcastLimit && rows <= plain.iterator.map(_.rows).sum / 4
    }

    def rows(some: Seq[PartFile]): Seq[LogicalPlan] = {
      val (uniform, embedded) = some.partition(_.uniform.isDefined)
      sources.rows(uniform) ++ sources.rows(embedded, until)
    }

    def updates(some: Seq[PartFile]): Seq[LogicalPlan] = {
      val (uniform, embedded) = some.partition(_.uniform.isDefined)
      sources.updates(uniform) ++ sources.updates(embedded).map(Sources.upTo(_, until))
    }
  }

  /** Some columns of `whole`, and its first one by which Parquet leaves out row groups: rows that a
    * retraction may concern are found by it. To read it takes less than to look at all rows twice.
    */
  def withPruning(columns: StructType, whole: StructType): StructType =
    if (columns.isEmpty) columns
    else {
      val first = whole.find(field => prunable(field.dataType))
      StructType(first.toSeq ++ columns.filterNot(first.contains))
    }

  /** Each row once, with the sum of its diffs, the last column, if it is not zero. */
  def updates(plan: LogicalPlan): LogicalPlan = {
    val sums = summed(plan)
    Filter(Not(EqualTo(sums.output.last, Literal(0L))), sums)
  }

  /** Each row and time once, with the sum of its diffs, the last column, if it is not zero. `files` are
    * those in which the updates of `plan` are.
    */
  private[scan] def changes(plan: LogicalPlan, files: Seq[PartFile]): LogicalPlan =
    updates(gathered(plan, files, Nil))

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

  /** Consolidates only the rows whose hash a retracted row has, of which all are here. */
  private def candidates(
      stored: StoredFiles,
      updates: Seq[InlineUpdate],
      retracted: Seq[InlineUpdate]
  ): LogicalPlan = {
    val sources = stored.sources
    val hash = hashOf(stored.schema)
    val hashes = retracted.map(u => hash(u.row)).toSet
    val (concerned, free) = updates.partition(u => hashes.contains(hash(u.row)))

    /** A value of one column leaves out most rows sooner than a hash of all does. */
    def among(plan: LogicalPlan): Expression = {
      val columns = plan.output.take(stored.schema.length)
      val hashed = InSet(new XxHash64(columns), hashes.map(h => h: Any))
      likely(columns, retracted).fold[Expression](hashed)(And(_, hashed))
    }

    val passing = stored.rows(stored.plain).map { scan =>
      ConcernedRows(Not(Coalesce(Seq(among(scan), Literal.FalseLiteral))), Nil, scan)
    }
    val suspected =
      stored.updates(stored.plain).map(scan => ConcernedRows(among(scan), Nil, scan))
    val small = suspected ++ sources.localUpdates(concerned, suspected.isEmpty)
    val narrow = PartScan.union(small.map(rowsAndDiffs(_, stored.schema.length)))
    val rest = settled(gathered(narrow, stored.plain, concerned))
    PartScan.union(passing ++ sources.local(repeated(free), needed = false) :+ rest)
  }

  /** Consolidates only the rows whose hash a retracted row has, of which some are in files. */
  private def besides(
      stored: StoredFiles,
      updates: Seq[InlineUpdate],
      retracted: Seq[InlineUpdate]
  ): LogicalPlan = {
    val width = stored.schema.length
    def hashed(plan: LogicalPlan): Expression = new XxHash64(plan.output.take(width))

    def hashes: LogicalPlan = {
      val taken = stored.updates(stored.retracting).map { scan =>
        Filter(LessThan(PartScan.attribute(scan, Wire.DiffColumn), Literal(0L)), scan)
      } ++ stored.sources.localUpdates(retracted, needed = false)
      PartScan.union(taken.map(plan => Project(Seq(Alias(hashed(plan), "hash")()), plan)))
    }

    /** Those of the rows of `plan`, a row's columns first, that a retraction may concern or not.
      *
      * The hash has no name: from one Spark would conclude as [[ConcernedRows]] says.
      */
    def only(joinType: JoinType)(plan: LogicalPlan): LogicalPlan = {
      val right = hashes
      val equal = EqualTo(hashed(plan), right.output.head)
      val hint = JoinHint(None, Some(HintInfo(strategy = Some(BROADCAST))))
      Join(plan, right, joinType, Some(equal), hint)
    }

    val passing = stored.rows(stored.plain).map(only(LeftAnti))
    val concerned = stored.updates(stored.plain).map(only(LeftSemi)) ++
      stored.updates(stored.retracting) ++ stored.sources.localUpdates(updates, needed = false)
    val rest = settled(PartScan.union(concerned.map(rowsAndDiffs(_, width))))
    PartScan.union(passing :+ rest)
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
    Project(sums.output.init, ReplicateByMultiplicity.of(sums, sums.output.last))
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
