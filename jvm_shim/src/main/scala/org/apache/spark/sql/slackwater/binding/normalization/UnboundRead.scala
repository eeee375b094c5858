package org.apache.spark.sql.slackwater.binding.normalization

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.hold.Hold
import org.apache.spark.sql.slackwater.process.{RunningStatement, SparkSessions}
import org.apache.spark.sql.slackwater.protocol.Json

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
private[normalization] object UnboundRead {

  def of(session: SparkSession, plan: LogicalPlan, wanted: Collector): Option[FoundRead] = {
    val beganNs = System.nanoTime
    val reads = wanted.plainReads
    for {
      coordinator <- wanted.coordinator if reads.nonEmpty
      known <- coordinator.known(SparkSessions.id(session), reads)
      offers = reads.map(_.id).zip(known.offers).toMap
      read <- new RowsOfIndexes(session, known.timestamp, offers).of(plan, reads.size)
      if known.stillCounts()
    } yield {
      val told = describe(session, plan, known.timestamp)
      told.put("took_us", (System.nanoTime - beganNs) / 1000)
      val hold = Hold.unbound(coordinator, told, beganNs)
      hold.strategy.byIndex()
      FoundRead(read, Some(hold), known.resultBytes)
    }
  }

  private def describe(session: SparkSession, plan: LogicalPlan, timestamp: Long): ObjectNode = {
    val context = session.sparkContext
    val told = Json.obj().put("session", SparkSessions.id(session)).put("timestamp", timestamp)
    told.put("execution", RunningStatement.name(context))
    told.set[ObjectNode]("context", SparkSessions.context(session))
    told.put("application", context.appName)
    RunningStatement.describe(context, told, Some(plan))
    told
  }
}
