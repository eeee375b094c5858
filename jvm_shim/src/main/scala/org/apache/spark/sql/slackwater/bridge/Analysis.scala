package org.apache.spark.sql.slackwater.bridge

import java.nio.charset.StandardCharsets.ISO_8859_1

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.SparkThrowable
import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.catalyst.analysis.{SQLFunctionNode, SQLScalarFunction}
import org.apache.spark.sql.catalyst.catalog.{HiveTableRelation, SQLFunction}
import org.apache.spark.sql.catalyst.expressions.{
  AesEncrypt,
  ArraySort,
  Cast,
  Expression,
  KllSketchMergeBase,
  Literal,
  Nondeterministic,
  RowOrdering,
  SortArray,
  UserDefinedExpression,
  WindowExpression
}
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.catalyst.plans.logical.{
  LeafNode,
  LogicalPlan,
  Sample,
  ScriptTransformation,
  View
}
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.LogicalRDD
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, LogicalRelation}
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.slackwater.binding.{MzNow, Ours}
import org.apache.spark.sql.slackwater.binding.logical.AsOf
import org.apache.spark.sql.slackwater.catalog.CollectionChangelog
import org.apache.spark.sql.slackwater.plans.expressions.Dated
import org.apache.spark.sql.slackwater.process.SparkSessions
import org.apache.spark.sql.slackwater.protocol.Json
import org.apache.spark.sql.slackwater.scan.datasources.PartIndex
import org.apache.spark.sql.slackwater.shims.{V1Relation, V2Relation}
import org.apache.spark.sql.types._
import org.apache.spark.sql.util.SchemaUtils
import org.apache.spark.unsafe.types.UTF8String

/** What the coordinator wants to know about a query. */
private[slackwater] object Analysis {

  /** Raises Spark's INDETERMINATE_COLLATION_IN_SCHEMA: no collection has such a column. */
  def describe(session: SparkSession, plan: LogicalPlan): ObjectNode = {
    SchemaUtils.checkIndeterminateCollationInSchema(plan.schema)
    val found = new Findings
    walk(plan, named = true) { (node, named) =>
      found.leaf(node, named)
      node.expressions.foreach(found.expression)
      node.expressions.foreach(found.luck(_, Order.none))
    }
    val answer = Json.obj()
    answer.set[ObjectNode]("schema", Json.ofSchema(plan.schema))
    answer.set[ObjectNode]("relations", Json.texts(found.relations))
    answer.set[ObjectNode]("views", Json.texts(found.views.flatMap(viewId(session, _))))
    answer.set[ObjectNode](
      "named",
      Json.texts(found.namedRelations ++ found.namedViews.flatMap(viewId(session, _)))
    )
    answer.set[ObjectNode]("foreign", Json.texts(found.foreign))
    answer.set[ObjectNode]("timed", Json.texts(found.timed))
    answer.set[ObjectNode]("nondeterministic", Json.texts(found.nondeterministic))
    answer.put("uses_mz_now", found.usesNow)
  }

  /** Every node, and whether the query itself has it: what is below a view of ours belongs to that. */
  private def walk(
      plan: LogicalPlan,
      named: Boolean
  )(visit: (LogicalPlan, Boolean) => Unit): Unit = {
    visit(plan, named)
    val below = named && OurView.unapply(plan).isEmpty
    (plan.children ++ plan.subqueries).foreach(walk(_, below)(visit))
  }

  private object OurView {
    def unapply(plan: LogicalPlan): Option[Seq[String]] = plan match {
      case view: View if view.desc.identifier.catalog.contains(SparkSessions.catalogName) =>
        Some(view.desc.identifier.database.toSeq :+ view.desc.identifier.table)
      case _ => None
    }
  }

  /** The error in the protocol's form, with Spark's own condition where Spark has found it. */
  def failure(error: Throwable): ObjectNode = {
    val node = Json.obj()
    val inner = node.putObject("error")
    error match {
      case known: SparkThrowable if known.getCondition != null =>
        inner.put("condition", known.getCondition)
        inner.put("sqlstate", Option(known.getSqlState).getOrElse("XX000"))
        inner.put("message", text(error, known))
        inner.set[ObjectNode]("parameters", Json.textMap(known.getMessageParameters.asScala))
      case _ =>
        inner.put("condition", "SLACKWATER_INTERNAL").put("sqlstate", "XX000")
        inner.put("message", Option(error.getMessage).getOrElse(error.getClass.getName))
        inner.putObject("parameters")
    }
    error match {
      case at: AnalysisException if at.line.isDefined && at.startPosition.isDefined =>
        inner.putObject("position").put("line", at.line.get).put("column", at.startPosition.get)
      case _ => inner.putNull("position")
    }
    node
  }

  /** The message without the condition and the SQLSTATE, which the front end puts around it. */
  private def text(error: Throwable, known: SparkThrowable): String = {
    val plain = error match {
      case analysis: AnalysisException => analysis.getSimpleMessage
      case other                       => Option(other.getMessage).getOrElse("")
    }
    val begin = s"[${known.getCondition}] "
    val body = if (plain.startsWith(begin)) plain.substring(begin.length) else plain
    val end = body.indexOf(" SQLSTATE: ")
    if (end >= 0) body.substring(0, end) else body
  }

  private def viewId(session: SparkSession, name: Seq[String]): Option[String] = {
    val body = SparkSessions.request(session)
    body.set[ObjectNode]("namespace", Json.texts(name.init))
    body.put("name", name.last)
    SparkSessions.coordinator(session).find("/v1/catalog/load", body).map(_.get("id").asText)
  }

  /** What makes up for rows that come in any order.
    *
    * @param ofRows
    *   a window says in which order they come
    * @param ofResult
    *   the list that is made of them is sorted
    */
  private final case class Order(ofRows: Boolean, ofResult: Boolean) {
    def matters(function: AggregateFunction): Boolean = function match {
      case _: First | _: Last | _: AnyValue => !ofRows
      case _: CollectList | _: CollectSet   => !ofResult
      // These sketches leave out every other value, the odd or the even ones at random.
      case _: KllSketchAggBase | _: KllMergeAggBase[_] => true
      // Maps that are equal count apart there.
      case mode: Mode    => !RowOrdering.isOrderable(mode.child.dataType)
      case list: ListAgg => !list.orderExpressions.exists(_.child.semanticEquals(list.child))
      case _             => false
    }
  }

  private object Order {
    val none: Order = Order(ofRows = false, ofResult = false)
  }

  private final class Findings {
    val relations: mutable.LinkedHashSet[String] = mutable.LinkedHashSet.empty
    val views: mutable.LinkedHashSet[Seq[String]] = mutable.LinkedHashSet.empty
    val namedRelations: mutable.LinkedHashSet[String] = mutable.LinkedHashSet.empty
    val namedViews: mutable.LinkedHashSet[Seq[String]] = mutable.LinkedHashSet.empty
    val foreign: mutable.LinkedHashSet[String] = mutable.LinkedHashSet.empty
    val timed: mutable.LinkedHashSet[String] = mutable.LinkedHashSet.empty
    val nondeterministic: mutable.LinkedHashSet[String] = mutable.LinkedHashSet.empty
    var usesNow = false
    private val moment = """(?is)\s*(now|today|tomorrow|yesterday)\b.*""".r
    private val typed = """(?is)(?:date|timestamp\w*)\s*r?['"](.*)""".r

    def leaf(node: LogicalPlan, named: Boolean): Unit = node match {
      case OurView(name) =>
        views += name
        if (named) namedViews += name
      case V2Relation(Ours(table)) =>
        relations += table.id
        if (table.asOf.nonEmpty) timed += table.name
        if (named) namedRelations += table.id
      case V2Relation(CollectionChangelog(changes)) =>
        relations += changes.table.id
        timed += changes.name
        if (named) namedRelations += changes.table.id
      case AsOf(_, time, _)            => timed += s"its query AS OF ${time.sql}"
      case other: DataSourceV2Relation => foreign += other.name
      case V1Relation(files: HadoopFsRelation) if files.location.isInstanceOf[PartIndex] =>
      case relation: LogicalRelation                                                     =>
        foreign += relation.catalogTable.fold(relation.relation.toString)(
          _.identifier.unquotedString
        )
      case hive: HiveTableRelation            => foreign += hive.tableMeta.identifier.unquotedString
      case stream: StreamingRelationV2        => foreign += stream.sourceName
      case rdd: LogicalRDD                    => foreign += Option(rdd.rdd.name).getOrElse("an RDD")
      case leaf: LeafNode if leaf.isStreaming => foreign += leaf.nodeName
      case _: Sample                          => nondeterministic += "TABLESAMPLE"
      case _: ScriptTransformation            => nondeterministic += "TRANSFORM"
      case SQLFunctionNode(function, _)       => declared(function)
      case _                                  =>
    }

    def expression(whole: Expression): Unit = whole.foreach {
      case _: MzNow                    => usesNow = true
      case l: Literal if isOfTheDay(l) => nondeterministic += written(l)
      case Cast(Literal(text: UTF8String, _), to, _, _) if isOfTheDay(text, to) =>
        nondeterministic += s"'$text'"
      case c: Cast if takesTheDay(c.child.dataType, c.dataType) =>
        nondeterministic += "the cast of texts inside of others to TIMESTAMP"
      case SQLScalarFunction(function, _, _) if isLuck(function) => declared(function)
      case f: UserDefinedExpression if !f.deterministic          => nondeterministic += f.name
      case n: Nondeterministic                                   => nondeterministic += n.prettyName
      case c if c.children.isEmpty && c.containsPattern(CURRENT_LIKE) =>
        nondeterministic += c.prettyName
      case other if !other.deterministic && other.children.forall(_.deterministic) =>
        nondeterministic += other.prettyName
      case encrypted: AesEncrypt if !hasOneResult(encrypted) =>
        nondeterministic += encrypted.prettyName
      case merged: KllSketchMergeBase => nondeterministic += merged.prettyName
      case version if version.prettyName == "version" && version.children.isEmpty =>
        nondeterministic += version.prettyName
      case _ =>
    }

    /** Whether it was written as a text such as `now`, or as a time without a date, of which the
      * parser has made a time of this day.
      */
    private def isOfTheDay(literal: Literal): Boolean = written(literal) match {
      case typed(text) => isOfTheDay(UTF8String.fromString(text), literal.dataType)
      case _           => false
    }

    private def isOfTheDay(text: UTF8String, made: DataType): Boolean = made match {
      case TimestampType               => isMoment(text) || Dated.isTimeAlone(text)
      case DateType | TimestampNTZType => isMoment(text)
      case _                           => false
    }

    private def isMoment(text: UTF8String): Boolean = moment.matches(text.toString)

    private def written(node: Expression): String = {
      val at = node.origin
      val text = for {
        whole <- at.sqlText
        begin <- at.startIndex
        end <- at.stopIndex if begin >= 0 && end < whole.length
      } yield whole.substring(begin, end + 1)
      text.getOrElse("")
    }

    /** Whether texts inside of arrays, maps or structs become timestamps: those of a time alone would
      * be of the day on which Spark looks.
      */
    private def takesTheDay(from: DataType, to: DataType, inside: Boolean = false): Boolean =
      (from, to) match {
        case (_: StringType, TimestampType)           => inside
        case (ArrayType(one, _), ArrayType(other, _)) => takesTheDay(one, other, inside = true)
        case (MapType(k, v, _), MapType(otherK, otherV, _)) =>
          takesTheDay(k, otherK, inside = true) || takesTheDay(v, otherV, inside = true)
        case (one: StructType, other: StructType) =>
          one.zip(other).exists { case (f, t) =>
            takesTheDay(f.dataType, t.dataType, inside = true)
          }
        case _ => false
      }

    private def declared(function: SQLFunction): Unit =
      if (isLuck(function)) nondeterministic += function.name.unquotedString

    private def isLuck(function: SQLFunction): Boolean = function.deterministic.contains(false)

    /** Without a vector to begin with AES takes a random one, unless its mode has none. */
    private def hasOneResult(encrypted: AesEncrypt): Boolean = {
      def text(argument: Expression): Option[String] =
        Option.when(argument.foldable)(argument.eval()).filter(_ != null).map {
          case bytes: Array[Byte] => new String(bytes, ISO_8859_1)
          case other              => other.toString
        }
      text(encrypted.mode).exists(_.equalsIgnoreCase("ECB")) || text(encrypted.iv).exists(
        _.nonEmpty
      )
    }

    /** What depends on the order in which the rows come, though Spark calls it deterministic. */
    def luck(e: Expression, order: Order): Unit = e match {
      case sorting @ (_: ArraySort | _: SortArray) =>
        sorting.children.foreach(luck(_, order.copy(ofResult = true)))
      case window: WindowExpression =>
        val ordered = window.windowSpec.orderSpec.nonEmpty
        luck(window.windowFunction, Order(ofRows = ordered, ofResult = false))
        luck(window.windowSpec, Order.none)
      case call: AggregateExpression =>
        luck(call.aggregateFunction, order)
        call.filter.foreach(luck(_, Order.none))
      case function: AggregateFunction =>
        if (order.matters(function)) nondeterministic += function.prettyName
        function.children.foreach(luck(_, Order.none))
      case other => other.children.foreach(luck(_, Order.none))
    }
  }
}
