package org.apache.spark.sql.slackwater.stream

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Literal
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.util.QuotingUtils.quoteNameParts
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.slackwater.binding.Ours
import org.apache.spark.sql.slackwater.binding.logical.AsOf
import org.apache.spark.sql.slackwater.binding.normalization.Binding
import org.apache.spark.sql.slackwater.hold.{BindScope, Hold}
import org.apache.spark.sql.slackwater.process.SparkSessions
import org.apache.spark.sql.slackwater.protocol.DataErrors
import org.apache.spark.sql.slackwater.scan.Changes
import org.apache.spark.sql.slackwater.scan.logical.BoundScan
import org.apache.spark.sql.slackwater.shims.V2Relation
import org.apache.spark.sql.types.LongType

/** Reads one collection for a stream, in a session of its own. Only the stream's thread uses it.
  *
  * A bind that names the time after which changes are wanted has all of them, each at its time: if the
  * collection had forgotten that time, the bind would fail. What a bind names stays until the stream
  * asks the next time how far it can read.
  */
private[stream] final class CollectionReader(session: SparkSession, streamed: StreamedCollection) {
  private lazy val own = CollectionReader.sessionOf(session)
  private var holds = Seq.empty[Hold]

  def name: String = streamed.name

  /** The time `at`, or the latest that can be read; and whether there are changes after `after`.
    *
    * Raises SLACKWATER_NO_VALID_TIMESTAMP where the collection has forgotten the changes.
    */
  def look(after: Option[Long], at: Option[Long]): Seen = {
    val before = holds
    holds = Nil
    try {
      val scan = bound(after, at)
      Seen(scan.identity.asOf, after.forall(Changes.any(scan, _)))
    } finally before.foreach(_.release())
  }

  /** The rows of a batch: the changes after `after`, or the contents, until `until`. */
  def rows(after: Option[Long], until: Long): RDD[InternalRow] = {
    val changes = new Changes(own, bound(after, Some(until)), streamed.columns)
    val plan = after match {
      case Some(time) if streamed.options.changes => changes.after(time)
      case Some(time)                             => changes.insertsAfter(time)
      case None                                   =>
        val begin = if (streamed.options.snapshot) changes.contents else changes.none
        if (streamed.options.changes) changes.added(begin) else begin
    }
    own.sessionState.executePlan(plan).toRdd
  }

  def close(): Unit = {
    holds.foreach(_.release())
    holds = Nil
  }

  private def bound(after: Option[Long], at: Option[Long]): BoundScan = {
    val relation = own.table(quoteNameParts(streamed.identifier)).queryExecution.analyzed
    relation.foreach {
      case V2Relation(Ours(table)) if table.id != streamed.id =>
        throw DataErrors.streamReplaced(name, streamed.id, table.id)
      case _ =>
    }
    def pinned(time: Option[Long]): LogicalPlan =
      time.fold(relation)(t => AsOf(relation, Literal(t, LongType), atLeast = false))
    val scope = new BindScope(Nil)
    val wanted = after.map(time => pinned(Some(time))).toSeq :+ pinned(at)
    val found = Binding(own).together(wanted, scope)
    holds ++= scope.holds
    found.last.collectFirst { case scan: BoundScan => scan }.get
  }
}

/** @param time
  *   in ms
  */
private[stream] final case class Seen(time: Long, changed: Boolean)

private object CollectionReader {

  /** A stream is no statement: no history has its reads. */
  private def sessionOf(of: SparkSession): SparkSession = {
    val own = of.newSession()
    own.conf.set(SQLConf.ADAPTIVE_EXECUTION_ENABLED.key, "false")
    own.conf.set(SQLConf.SHUFFLE_PARTITIONS.key, of.sessionState.conf.numShufflePartitions.toString)
    SparkSessions.makeInternal(own)
    own
  }
}
