package org.apache.spark.sql.slackwater.scan

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.{CommandResultExec, LocalTableScanExec, SparkPlan}

/** The rows of a plan that needs no job. */
private[slackwater] object LocalRows {
  def of(plan: SparkPlan): Option[Array[InternalRow]] = plan match {
    case _: LocalTableScanExec | _: InlineRowsExec | _: CommandResultExec =>
      Some(plan.executeCollect())
    case _ => None
  }
}
