package org.apache.spark.sql.slackwater.binding.execution

import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier
import org.apache.spark.sql.catalyst.plans.logical.{
  CreateMaterializedViewAsSelect,
  LogicalPlan,
  ReturnAnswer,
  WriteDelta
}
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.slackwater.binding.{MzNow, Ours}
import org.apache.spark.sql.slackwater.binding.logical.{SeveralInserts, Statement}
import org.apache.spark.sql.slackwater.process.SparkSessions
import org.apache.spark.sql.slackwater.protocol.DataErrors
import org.apache.spark.sql.slackwater.scan.execution.{
  IndexLookupJoinExec,
  InlineRowsExec,
  SlotRowsExec
}
import org.apache.spark.sql.slackwater.scan.logical.{
  BoundChanges,
  BoundScan,
  ConcernedRows,
  ConsolidatedRows,
  IndexLookupJoin,
  IndexedView,
  InlineRows,
  SlotRows,
  UnboundScan
}
import org.apache.spark.sql.slackwater.shims.V2Relation
import org.apache.spark.sql.slackwater.write.DiffWrite

/** Plans statements and inline rows, and refuses what was never bound.
  *
  * Spark itself parses CREATE MATERIALIZED VIEW, for its pipelines, and refuses to run one: who gets
  * there has most likely forgotten our catalog.
  */
private[slackwater] object DataStrategy extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    // Limits are planned in another way where they are right below the root.
    case ReturnAnswer(statement: Statement) =>
      Seq(StatementExec.of(statement, planLater(ReturnAnswer(statement.child))))
    case statement: Statement => Seq(StatementExec.of(statement, planLater(statement.child)))
    case delta: WriteDelta    =>
      delta.write.toSeq.collect { case diffs: DiffWrite => DiffWriteExec.of(delta, diffs) }.flatten
    case SeveralInserts(targets, queries) => Seq(SeveralInsertsExec(targets, queries))
    case inline: InlineRows               =>
      Seq(InlineRowsExec(inline.label, inline.output, inline.rows, inline.strategy))
    case SlotRows(name, output)         => Seq(SlotRowsExec(name, output))
    case join: IndexLookupJoin          => Seq(IndexLookupJoinExec(planLater(join.probe), join))
    case V2Relation(Ours(table))        => throw DataErrors.unbound(table.name)
    case scan: DataSourceV2ScanRelation =>
      scan.relation.table match {
        case Ours(table) => throw DataErrors.unbound(table.name)
        case _           => Nil
      }
    case scan: BoundScan        => throw DataErrors.unbound(scan.name)
    case changes: BoundChanges  => throw DataErrors.unbound(changes.scan.name)
    case scan: UnboundScan      => throw DataErrors.unbound(scan.name)
    case view: IndexedView      => Seq(planLater(view.child))
    case rows: ConsolidatedRows => Seq(planLater(rows.child))
    case rows: ConcernedRows    => Seq(planLater(rows.filter))
    case node if node.expressions.exists(_.exists(_.isInstanceOf[MzNow])) =>
      throw DataErrors.unbound(MzNow.Name)
    case create: CreateMaterializedViewAsSelect if SparkSessions.isEnabled(SQLConf.get) =>
      create.name match {
        case created: ResolvedIdentifier if created.catalog.name == SparkSessions.catalogName =>
          throw DataErrors.inScript("CREATE MATERIALIZED VIEW")
        case elsewhere: ResolvedIdentifier =>
          val name = elsewhere.identifier.namespace :+ elsewhere.identifier.name
          throw DataErrors.elsewhere(
            "CREATE MATERIALIZED VIEW",
            name.mkString("."),
            elsewhere.catalog.name
          )
        case _ => Nil
      }
    case _ => Nil
  }
}
