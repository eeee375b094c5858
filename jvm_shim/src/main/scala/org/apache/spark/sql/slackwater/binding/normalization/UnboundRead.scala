package org.apache.spark.sql.slackwater.binding.normalization

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.catalyst.CurrentUserContext
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.slackwater.binding.Ours
import org.apache.spark.sql.slackwater.catalog.{IdentifiedTable, SlackwaterTable}
import org.apache.spark.sql.slackwater.hold.Hold
import org.apache.spark.sql.slackwater.process.{RunningStatement, SparkSessions}
import org.apache.spark.sql.slackwater.protocol.{DataErrors, Json}
import org.apache.spark.sql.slackwater.scan.IndexScan
import org.apache.spark.sql.slackwater.scan.logical.UnboundScan
import org.apache.spark.sql.slackwater.shims.V2Relation
import org.apache.spark.sql.types.{DatetimeType, StringType}

/** A query that is read at one time.
  *
  * @param hold
  *   of what it reads
  * @param resultBytes
  *   the most that it may bring to the driver
  */
private[normalization] final case class FoundRead(
    plan: LogicalPlan,
    hold: Option[Hold],
    resultBytes: Long
)

/** Reads all relations of a query by indexes of this driver, at a time that nobody is asked for.
  *
  * The time is the read timestamp of the oracle at a moment after the query has begun, so that it sees
  * each write that was acknowledged before. The rows are taken at once, and afterwards it is made sure
  * that the coordinator still led, and had no other catalog and no errors to tell of. Where any of this
  * is not so, or an index is behind, the query is bound as any other.
  */
private[normalization] object UnboundRead extends PredicateHelper {

  def of(session: SparkSession, plan: LogicalPlan, wanted: Collector): Option[FoundRead] = {
    val beganNs = System.nanoTime
    val reads = wanted.plainReads
    for {
      coordinator <- wanted.coordinator if reads.nonEmpty
      known <- coordinator.known(SparkSessions.id(session), reads)
      offers = reads.map(_.id).zip(known.offers).toMap
      read <- substituted(plan, reads.size, known.timestamp, offers)
      if known.stillCounts()
    } yield {
      val told = describe(session, plan, known.timestamp)
      told.put("took_us", (System.nanoTime - beganNs) / 1000)
      FoundRead(read, Some(Hold.unbound(coordinator, told, beganNs)), known.resultBytes)
    }
  }

  /** The plan with rows of indexes for its `count` relations; None: not all are right below a filter
    * for whose values an index has the rows.
    */
  private def substituted(
      plan: LogicalPlan,
      count: Int,
      asOf: Long,
      offers: Map[String, JsonNode]
  ): Option[LogicalPlan] = {
    var found = 0
    val made = plan.transformDown { case filter @ Filter(condition, child) =>
      filtered(condition, child, asOf, offers).fold(filter) { rows =>
        found += 1
        Filter(condition, rows)
      }
    }
    Option.when(found == count)(made)
  }

  private def filtered(
      condition: Expression,
      child: LogicalPlan,
      asOf: Long,
      offers: Map[String, JsonNode]
  ): Option[LogicalPlan] = child match {
    case alias: SubqueryAlias =>
      filtered(condition, alias.child, asOf, offers).map(rows => alias.copy(child = rows))
    case relation @ V2Relation(Ours(table)) if isPlain(table) =>
      val fixed = splitConjunctivePredicates(condition).filter(isFixed)
      offers.get(table.id).filter(_ => fixed.nonEmpty).flatMap { indexes =>
        val name = DataErrors.nameOf(table.description)
        val output = relation.asInstanceOf[DataSourceV2Relation].output
        IndexScan.here(fixed.reduce(And), UnboundScan(name, asOf, output, indexes))
      }
    case _ => None
  }

  /** Whether rows have the columns under the names of the table. */
  private def isPlain(table: SlackwaterTable): Boolean = !table.isInstanceOf[IdentifiedTable]

  /** Whether the values in a condition are the same whenever they are computed. The optimizer has yet
    * to say what the present time is, and that the text `today` is a date.
    */
  private def isFixed(condition: Expression): Boolean = !condition.exists {
    case cast: Cast =>
      cast.child.dataType.isInstanceOf[StringType] && cast.dataType.isInstanceOf[DatetimeType]
    case _: AttributeReference | _: Literal => false
    case other                              => other.children.isEmpty
  }

  private def describe(session: SparkSession, plan: LogicalPlan, timestamp: Long): ObjectNode = {
    val context = session.sparkContext
    val told = Json.obj().put("session", SparkSessions.id(session)).put("timestamp", timestamp)
    told.put("execution", RunningStatement.name(context))
    told.put("user", CurrentUserContext.getCurrentUser).put("application", context.appName)
    RunningStatement.describe(context, told, Some(plan))
    told
  }
}
