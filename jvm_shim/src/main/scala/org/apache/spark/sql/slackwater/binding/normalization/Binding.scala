package org.apache.spark.sql.slackwater.binding.normalization

import java.util.concurrent.atomic.AtomicLong

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.catalyst.analysis.AsOfVersion
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.binding.{CallSite, MzNow, Ours}
import org.apache.spark.sql.slackwater.binding.logical.{
  AsOf,
  Queries,
  SeveralInserts,
  Statement,
  StatementBinding
}
import org.apache.spark.sql.slackwater.catalog.CollectionChangelog
import org.apache.spark.sql.slackwater.hold.{BindScope, Hold, Holds}
import org.apache.spark.sql.slackwater.process.{RunningStatement, SparkSessions}
import org.apache.spark.sql.slackwater.protocol.Json
import org.apache.spark.sql.slackwater.shims.V2Relation

/** Gives every collection of a plan the parts that are valid at one timestamp.
  *
  * Spark applies it once for each plan, to the whole of it: so one statement makes one call of
  * `/v1/bind`. A plan that is executed again is bound again, by `StatementExec`.
  */
case class Binding(session: SparkSession) extends Rule[LogicalPlan] {

  override def apply(plan: LogicalPlan): LogicalPlan =
    SeveralInserts.of(plan).getOrElse(if (Binding.concerns(plan)) bound(plan) else plan)

  /** The queries of one statement, all at one time, under a hold of `scope`. */
  def together(queries: Seq[LogicalPlan], scope: BindScope): Seq[LogicalPlan] = {
    val plan = Queries(queries)
    val wanted = new Collector
    val prepared = wanted.statement(plan)
    if (wanted.isEmpty) prepared.children
    else {
      val answer = bind(plan, wanted, Some(scope), Hold.WithExecution)
      new Substitution(answer, wanted).statement(plan).children
    }
  }

  private def bound(plan: LogicalPlan): LogicalPlan = {
    val wanted = new Collector
    val prepared = wanted.statement(plan)
    if (wanted.isEmpty) prepared
    else if (CallSite.nameCached) nameOfCached(plan, wanted)
    else {
      val scope = BindScope.current
      val execution = Holds.executionOf(session)
      val command = plan.isInstanceOf[Command]
      val cached = CallSite.fillCache
      val kept = cached && wanted.isPinned
      val first = scope.isDefined || execution.isEmpty && !cached && CallSite.executeAtOnce
      val end =
        if (kept) Hold.WhenCollected
        else if (first || command || execution.isDefined && !cached) Hold.WithExecution
        else Hold.Now
      if (command) new Substitution(bind(plan, wanted, scope, end), wanted).statement(plan)
      else {
        val writes = scope.exists(_.writeTargets.nonEmpty)
        val limited = !writes && !SparkSessions.isInternal(session)
        val found = if (cached || !limited) None else UnboundRead.of(session, plan, wanted)
        found.foreach(read => follow(read.hold, scope, end))
        val read = found.getOrElse {
          val answer = bind(plan, wanted, scope, end)
          FoundRead(
            new Substitution(answer, wanted).statement(plan),
            answer.hold,
            answer.resultBytes
          )
        }
        val limit = Option.when(limited)(read.resultBytes)
        // What is planned for a server's statement is executed a little later.
        val later = first && scope.isEmpty
        val binding =
          new StatementBinding(session, plan, execution, first, kept, limit, read.hold, later)
        Statement(read.plan, binding)
      }
    }
  }

  /** What is read at one time for ever has the same name each time. The rest is known by the names
    * of its relations alone: nothing that is read is called so, hence it is never served. A version
    * in the name, which no relation has, keeps Spark from resolving a table to the one of the entry,
    * and from making the entry anew after each write.
    */
  private def nameOfCached(plan: LogicalPlan, wanted: Collector): LogicalPlan =
    if (!wanted.isPinned) {
      plan.transform { case relation @ V2Relation(Ours(_) | CollectionChangelog(_)) =>
        relation.copy(timeTravelSpec = Binding.neverServed)
      }
    } else new Substitution(bind(plan, wanted, None, Hold.Now), wanted).statement(plan)

  /** @param end
    *   when what is bound is not read any more; `Now` where it is bound again before it is read
    */
  private def bind(
      plan: LogicalPlan,
      wanted: Collector,
      scope: Option[BindScope],
      end: Hold.End
  ): Bound = {
    val coordinator = wanted.coordinator.getOrElse(SparkSessions.coordinator(session))
    val context = session.sparkContext
    val body = SparkSessions.request(session).put("execution", RunningStatement.name(context))
    RunningStatement.describe(context, body, Some(plan))
    val shared = wanted.sharedTime
    val relations = body.putArray("relations")
    wanted.relations.foreach { case (table, own, around) =>
      val entry = relations.addObject().put("id", table.id)
      val time = own.orElse(if (shared.isDefined) None else around)
      time.fold(entry.putNull("as_of"))(t => entry.set[ObjectNode]("as_of", t.toJson))
      val required = Collector.required(table)
      if (required.nonEmpty) entry.set[ObjectNode]("not_null", Json.texts(required))
    }
    if (wanted.views.nonEmpty)
      body.set[ObjectNode]("views", Json.texts(wanted.views.distinct))
    shared.fold(body.putNull("as_of"))(t => body.set[ObjectNode]("as_of", t.toJson))
    val targets = wanted.writeTarget.toSeq ++ scope.toSeq.flatMap(_.writeTargets)
    body.set[ObjectNode]("write_targets", Json.texts(targets.distinct))
    val reads = if (targets.isEmpty) wanted.plainReads else Nil
    val answer = Holds.releasing(coordinator) { ended =>
      if (ended.nonEmpty) Holds.describe(ended, body, "released")
      coordinator.bind(body, reads)
    }
    val hold = Option(answer.get("hold")).filterNot(_.isNull).map(_.asText).map { name =>
      Hold.of(coordinator, SparkSessions.id(session), name)
    }
    follow(hold, scope, end)
    Bound(answer, hold, Binding.sequence.incrementAndGet())
  }

  private def follow(hold: Option[Hold], scope: Option[BindScope], end: Hold.End): Unit =
    hold.foreach { h =>
      scope match {
        case Some(open) => open.adopt(h)
        case None       =>
          end match {
            case Hold.WithExecution => Holds.follow(session, h)
            case Hold.WhenCollected => Holds.releaseWhenCollected(h)
            case Hold.Now           => h.release()
          }
      }
    }
}

object Binding {
  private val sequence = new AtomicLong
  private val neverServed = Some(AsOfVersion("never served"))

  private[slackwater] def concerns(plan: LogicalPlan): Boolean = {
    var found = false
    plan.foreachWithSubqueries {
      case V2Relation(Ours(_) | CollectionChangelog(_))  => found = true
      case _: AsOf                                       => found = true
      case write: V2WriteCommand if Ours.is(write.table) => found = true
      case node => if (node.expressions.exists(_.exists(_.isInstanceOf[MzNow]))) found = true
    }
    found
  }
}
