package org.apache.spark.sql.slackwater.binding.normalization

import scala.collection.mutable.ArrayBuffer

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases
import org.apache.spark.sql.catalyst.expressions.{AttributeReference, Literal, PlanExpression}
import org.apache.spark.sql.catalyst.expressions.Literal.TrueLiteral
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes
import org.apache.spark.sql.connector.catalog.TableCapability
import org.apache.spark.sql.connector.write.RowLevelOperationTable
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.slackwater.binding.{MzNow, OurView, Ours, ReadTime}
import org.apache.spark.sql.slackwater.binding.logical.AsOf
import org.apache.spark.sql.slackwater.catalog.{
  CollectionChangelog,
  IdentifiedTable,
  SlackwaterTable
}
import org.apache.spark.sql.slackwater.hold.Hold
import org.apache.spark.sql.slackwater.protocol.{Coordinator, DataErrors, RelationRead, Wire}
import org.apache.spark.sql.slackwater.scan.logical.{
  BoundChanges,
  BoundParts,
  BoundScan,
  IndexedView,
  ScanIdentity
}
import org.apache.spark.sql.slackwater.shims.V2Relation
import org.apache.spark.sql.slackwater.values.Stored
import org.apache.spark.sql.slackwater.write.{FirstMatch, RowLevel}
import org.apache.spark.sql.types.LongType

/** A collection that is to be emptied. Spark reads texts of fixed length with blanks behind. */
private object Emptied {
  def unapply(table: LogicalPlan): Option[DataSourceV2Relation] =
    EliminateSubqueryAliases(table) match {
      case Project(_, padded)                    => unapply(padded)
      case r: DataSourceV2Relation if Ours.is(r) => Some(r)
      case _                                     => None
    }
}

/** What the coordinator answered. `sequence` tells two binds apart. */
private[slackwater] final case class Bound(answer: JsonNode, hold: Option[Hold], sequence: Long) {
  def timestamp: Option[Long] = Wire.longOption(answer.get("timestamp"))
  def relation(index: Int): JsonNode = answer.get("relations").get(index)

  /** The most bytes that the session lets a query bring to the driver. */
  def resultBytes: Long = answer.get("result_bytes").asLong

  /** The indexes on a view. */
  def indexes(view: String): JsonNode = answer.path("views").path(view)
}

/** One walk over a plan in a fixed order; both passes of binding take the same way. */
private[slackwater] abstract class PlanWalk {
  protected def relation(
      r: DataSourceV2Relation,
      t: SlackwaterTable,
      at: Option[ReadTime]
  ): LogicalPlan
  protected def changed(
      r: DataSourceV2Relation,
      changes: CollectionChangelog,
      at: Option[ReadTime]
  ): LogicalPlan
  protected def view(view: View, id: String)(walked: => LogicalPlan): LogicalPlan
  protected def now(expression: MzNow, at: Option[ReadTime]): Literal
  protected def rowLevel(write: WriteDelta, table: SlackwaterTable): WriteDelta

  final def statement(plan: LogicalPlan): LogicalPlan = walk(plan, None)

  private def walk(plan: LogicalPlan, at: Option[ReadTime]): LogicalPlan = plan match {
    case AsOf(child, time, atLeast) =>
      walk(child, AsOf.milliseconds(time).map(ReadTime(_, atLeast)))
    case write: WriteDelta if Ours.is(write.table) =>
      operation(write, at)
    case DeleteFromTable(Emptied(target), TrueLiteral)      => truncation(target)
    case write: V2WriteCommand if startsOwnExecution(write) =>
      // The query runs as an execution of its own, from the analyzed plan that Spark has kept.
      write.withNewQuery(LocalRelation(write.query.output))
    case r @ V2Relation(Ours(table))                  => relation(r, table, at)
    case r @ V2Relation(CollectionChangelog(changes)) => changed(r, changes, at)
    case v @ OurView(id) => view(v.asInstanceOf[View], id)(descend(v, at))
    case other           => descend(other, at)
  }

  private def descend(plan: LogicalPlan, at: Option[ReadTime]): LogicalPlan =
    plan
      .mapExpressions(_.transformDown {
        case s: PlanExpression[_] =>
          val subquery = s.asInstanceOf[PlanExpression[LogicalPlan]]
          subquery.withNewPlan(walk(subquery.plan, at))
        case n: MzNow => now(n, at)
      })
      .mapChildren(walk(_, at))

  private def operation(write: WriteDelta, at: Option[ReadTime]): LogicalPlan =
    EliminateSubqueryAliases(write.table) match {
      case V2Relation(Ours(table)) =>
        // The condition is in the query already; here it could only be optimised a second time.
        val bare = write.copy(
          condition = Literal.FalseLiteral,
          query = FirstMatch.only(write.query),
          groupFilterCondition = None
        )
        rowLevel(descend(bare, at).asInstanceOf[WriteDelta], table)
      case _ => descend(write, at)
    }

  private def truncation(target: DataSourceV2Relation): LogicalPlan = {
    val names = target.table.columns.map(_.name).toSet
    val whole = target.copy(output = target.output.filter(a => names.contains(a.name)))
    val nothing = LocalRelation(whole.output)
    OverwriteByExpression
      .byPosition(whole, nothing, TrueLiteral)
      .copy(analyzedQuery = Some(nothing))
  }

  private def startsOwnExecution(write: V2WriteCommand): Boolean = write match {
    case _: AppendData | _: OverwriteByExpression | _: InsertOnlyMerge =>
      EliminateSubqueryAliases(write.table) match {
        case r: DataSourceV2Relation =>
          r.table.capabilities.contains(TableCapability.V1_BATCH_WRITE)
        case _ => false
      }
    case _ => false
  }
}

/** First pass: which collections at which times. */
private final class Collector extends PlanWalk {
  type Wanted = (SlackwaterTable, Option[ReadTime], Option[ReadTime])
  val relations: ArrayBuffer[Wanted] = ArrayBuffer.empty
  val views: ArrayBuffer[String] = ArrayBuffer.empty
  var writeTarget: Option[String] = None
  private val nows = ArrayBuffer.empty[Option[ReadTime]]

  def isEmpty: Boolean = relations.isEmpty && nows.isEmpty

  def coordinator: Option[Coordinator] = relations.headOption.map(_._1.coordinator)

  /** Whether everything is read at exact times that the statement gives. */
  def isPinned: Boolean =
    (relations.map { case (_, own, around) => own.orElse(around) } ++ nows)
      .forall(_.exists(!_.atLeast))

  /** The relations, if all that the query needs is their contents at the time of a plain read; else
    * none. To be asked when the walk is over.
    */
  lazy val plainReads: Seq[RelationRead] = {
    val plain = nows.isEmpty && writeTarget.isEmpty &&
      relations.forall { case (_, own, around) => own.isEmpty && around.isEmpty }
    if (plain) relations.map(each => RelationRead(each._1.id, Collector.required(each._1))).toSeq
    else Nil
  }

  /** The one time that the statement gives to everything that has none of its own. */
  def sharedTime: Option[ReadTime] = {
    val around = (relations.filter(_._2.isEmpty).map(_._3) ++ nows).distinct
    if (around.size == 1) around.head else None
  }

  override protected def relation(
      r: DataSourceV2Relation,
      table: SlackwaterTable,
      at: Option[ReadTime]
  ): LogicalPlan = {
    relations += ((table, table.asOf.map(ReadTime(_, atLeast = false)), at))
    r
  }

  /** It is bound at both ends: what has changed since a time is known as long as that can be read. */
  override protected def changed(
      r: DataSourceV2Relation,
      changes: CollectionChangelog,
      at: Option[ReadTime]
  ): LogicalPlan = {
    val times = changes.times
    relations += ((changes.table, Some(ReadTime(times.after, atLeast = false)), None))
    relations += ((changes.table, times.until.map(ReadTime(_, atLeast = false)), at))
    r
  }

  override protected def view(view: View, id: String)(walked: => LogicalPlan): LogicalPlan = {
    views += id
    walked
  }

  override protected def now(expression: MzNow, at: Option[ReadTime]): Literal = {
    nows += at
    Literal(0L, LongType)
  }

  override protected def rowLevel(write: WriteDelta, table: SlackwaterTable): WriteDelta = {
    writeTarget = Some(table.id)
    write
  }
}

private object Collector {

  /** The columns that a plan takes for NOT NULL. */
  def required(table: SlackwaterTable): Seq[String] =
    table.description.schema.filterNot(_.nullable).map(_.name)
}

/** Second pass: the answers in the order of the questions. */
private final class Substitution(bound: Bound, wanted: Collector) extends PlanWalk {
  private var next = 0
  private val nows = ArrayBuffer.empty[Long]

  override protected def relation(
      r: DataSourceV2Relation,
      table: SlackwaterTable,
      at: Option[ReadTime]
  ): LogicalPlan = scan(table, underTheirNames(r.output, table))

  override protected def changed(
      r: DataSourceV2Relation,
      changes: CollectionChangelog,
      at: Option[ReadTime]
  ): LogicalPlan = {
    next += 1
    val until = scan(changes.table, toAttributes(changes.table.dataSchema))
    BoundChanges(until, changes.times.after, r.output)
  }

  private def scan(table: SlackwaterTable, output: Seq[AttributeReference]): BoundScan = {
    val (_, own, around) = wanted.relations(next)
    val parts = bound.relation(next)
    next += 1
    val pinned = own.orElse(around).exists(!_.atLeast)
    val asOf = parts.get("as_of").asLong
    BoundScan(
      DataErrors.nameOf(table.description),
      ScanIdentity(table.id, asOf, if (pinned) 0L else bound.sequence),
      output,
      BoundParts(parts, Stored.columns(table.dataSchema), bound.hold)
    )
  }

  /** The view, which an index may have if all of its query is read at one time. */
  override protected def view(view: View, id: String)(walked: => LogicalPlan): LogicalPlan = {
    val (first, firstNow) = (next, nows.size)
    val query = walked
    val times = (first until next).map(bound.relation(_).get("as_of").asLong) ++ nows.drop(firstNow)
    val indexes = bound.indexes(id)
    // Under the settings of whoever reads it, it may mean something else.
    if (indexes.isEmpty || times.distinct.size != 1 || SQLConf.get.useCurrentSQLConfigsForView)
      query
    else
      IndexedView(
        query,
        query,
        view.desc.identifier.unquotedString,
        times.head,
        view.output.map(_.name),
        indexes,
        wanted.coordinator,
        bound.hold
      )
  }

  /** A row-level command knows columns by other names. */
  private def underTheirNames(
      output: Seq[AttributeReference],
      table: SlackwaterTable
  ): Seq[AttributeReference] = table match {
    case _: IdentifiedTable =>
      val names = table.dataSchema.names
      output.take(names.length).zip(names).map { case (a, name) => a.withName(name) } ++
        output.drop(names.length)
    case _ => output
  }

  override protected def now(expression: MzNow, at: Option[ReadTime]): Literal = {
    val time = bound.timestamp
      .orElse(at.map(_.milliseconds))
      .getOrElse(throw DataErrors.unsupported("mz_now() here", "Use it with AS OF."))
    nows += time
    Literal(time, LongType)
  }

  override protected def rowLevel(write: WriteDelta, table: SlackwaterTable): WriteDelta =
    EliminateSubqueryAliases(write.table) match {
      case r @ V2Relation(RowLevelOperationTable(t, operation: RowLevel)) =>
        val held = RowLevelOperationTable(t, operation.holding(bound.hold))
        write.copy(table = r.copy(table = held))
      case _ => write
    }
}
