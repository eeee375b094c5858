package org.apache.spark.sql.slackwater.binding.logical

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.QueryExecution
import org.apache.spark.sql.slackwater.hold.{BindScope, Hold, Holds, ReadStrategy}

/** What one bind of a query is good for, and how to bind the query again.
  *
  * @param execution
  *   in which it was bound; only there it is of this moment
  * @param anywhere
  *   the first execution may have it, whichever that is
  * @param kept
  *   every execution may have it: it fills a cache, with rows of one time for ever
  * @param resultBytes
  *   the most that an action may bring to the driver; None: as much as it likes
  * @param hold
  *   under which it is read: it is kept as long as the plan is, or it would end before that has run
  * @param later
  *   whether it was bound before any execution: the hold ends with the one that uses it
  */
private[slackwater] final class StatementBinding(
    @transient session: SparkSession,
    @transient unbound: LogicalPlan,
    execution: Option[Long],
    anywhere: Boolean,
    kept: Boolean,
    val resultBytes: Option[Long],
    @transient hold: Option[Hold] = None,
    later: Boolean = false
) extends Serializable {
  private var used = false

  def fresh: Boolean = synchronized {
    kept || !used && (anywhere || execution.isDefined && execution == Holds.executionOf(session))
  }

  def use(): Unit = synchronized {
    if (!used && later && Holds.executionOf(session).isDefined)
      hold.foreach(Holds.follow(session, _))
    used = true
    strategy.foreach(_.begin())
  }

  /** How it is read; None: nothing is. */
  def strategy: Option[ReadStrategy] = hold.map(_.strategy)

  /** The same for a plan of this moment that needed no bind. */
  def renewed: StatementBinding =
    new StatementBinding(session, unbound, None, anywhere = true, kept, resultBytes)

  /** The query as of now. What it reads is held as long as the running execution needs it. */
  def again(): QueryExecution = {
    val query = session.sessionState.executePlan(unbound)
    if (BindScope.current.isDefined) query.assertExecutedPlanPrepared()
    else {
      val scope = new BindScope(Nil)
      BindScope.within(scope)(query.assertExecutedPlanPrepared())
      scope.holds.foreach(Holds.follow(session, _))
    }
    query
  }
}
