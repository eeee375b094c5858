package org.apache.spark.sql.slackwater.write

import java.util.UUID

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.connector.write.{SupportsTruncate, V1Write, WriteBuilder}
import org.apache.spark.sql.execution.QueryExecution
import org.apache.spark.sql.slackwater.hold.{BindScope, Outcome}
import org.apache.spark.sql.slackwater.process.SparkSessions
import org.apache.spark.sql.sources.InsertableRelation

/** `INSERT` and its overwriting forms, `TRUNCATE`, and DataFrame writes. */
private[slackwater] final class InsertBuilder(table: WriteTarget)
    extends WriteBuilder
    with SupportsTruncate {
  private var mode: WriteMode = WriteMode.Append
  override def truncate(): WriteBuilder = {
    mode = WriteMode.Overwrite
    this
  }
  override def build(): V1Write = new Insert(table, mode)
}

private[slackwater] final class Insert(table: WriteTarget, mode: WriteMode) extends V1Write {
  override def description: String = s"${mode.name} ${table.name}"
  override def toString: String = description
  override def toInsertableRelation: InsertableRelation = (data: DataFrame, _: Boolean) =>
    Insert.run(table, mode, data.asInstanceOf[Dataset[_]].queryExecution)
}

private[slackwater] object Insert {

  /** Runs the query once, and writes its rows at the timestamp at which it read. */
  def run(table: WriteTarget, mode: WriteMode, query: QueryExecution): Unit = {
    val scope = new BindScope(Seq(table.lockedId))
    try {
      val plan = BindScope.within(scope)(query.executedPlan)
      val target = Target(table, mode)
      table.take(WrittenRows.of(target, query.sparkSession, plan, scope.holds)(identity))
    } catch {
      case failure: Throwable =>
        scope.holds.foreach(_.release(Outcome.failed(failure)))
        throw failure
    }
  }

  /** Runs several queries, and writes the rows of each at the one time at which all of them read.
    *
    * `bound` gives the queries as they are read under the scope. Nothing is written if one fails.
    */
  def together(targets: Seq[Target], session: SparkSession)(
      bound: BindScope => Seq[LogicalPlan]
  ): Unit = {
    val scope = new BindScope(targets.map(_.table.lockedId).distinct)
    try {
      val written = targets.zip(bound(scope)).map { case (target, query) =>
        query.setAnalyzed()
        val plan = BindScope.within(scope)(session.sessionState.executePlan(query).executedPlan)
        WrittenRows.of(target, session, plan, Nil)(identity)
      }
      val body = SparkSessions.request(session).put("write_id", UUID.randomUUID.toString)
      val hold = scope.holds.headOption
      hold.fold(body.putNull("hold"))(h => body.put("hold", h.name))
      val writes = body.putArray("writes")
      written.foreach(_.describe(writes.addObject()))
      targets.head.table.coordinator.call("/v1/write", body)
      hold.foreach(_.consumed())
    } catch {
      case failure: Throwable =>
        scope.holds.foreach(_.release(Outcome.failed(failure)))
        throw failure
    } finally scope.holds.foreach(_.release())
  }

  /** Leaves the table empty. */
  def nothing(table: WriteTarget): Unit = {
    val write = new TableWrite(SparkSession.active, table, WriteMode.Overwrite)
    val _ = write.commit(None, Nil, throw new IllegalStateException("no rows need no file"))
  }
}
