package org.apache.spark.sql.slackwater.scan.execution

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.{CommandResultExec, LocalTableScanExec, SparkPlan}

/** Runs another plan as it is; it needs a job where that one does. */
private[slackwater] trait RunsPlan extends SparkPlan {
  def child: SparkPlan
}

/** The rows of a plan that needs no job. */
private[slackwater] object LocalRows {
  def of(plan: SparkPlan): Option[Array[InternalRow]] =
    Option.when(needsNoJob(plan))(plan.executeCollect())

  private def needsNoJob(plan: SparkPlan): Boolean = plan match {
    case _: LocalTableScanExec | _: InlineRowsExec | _: CommandResultExec => true
    case root: RunsPlan                                                   => needsNoJob(root.child)
    case join: IndexLookupJoinExec                                        => needsNoJob(join.child)
    case _                                                                => false
  }
}
