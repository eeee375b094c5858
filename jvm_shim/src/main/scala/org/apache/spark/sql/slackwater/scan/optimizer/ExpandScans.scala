package org.apache.spark.sql.slackwater.scan.optimizer

import org.apache.spark.sql.catalyst.optimizer.{InferFiltersFromConstraints, PushDownPredicates}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.scan.{IndexJoin, IndexScan, PartScan}
import org.apache.spark.sql.slackwater.scan.logical.BoundScan

/** Replaces bound scans by what an index finds for their conditions, or by plans over their parts.
  *
  * Spark prunes columns before this rule runs, and leaves the projection above the leaf. It could
  * not prune below a consolidation, which groups by every column that it has.
  */
private[slackwater] final case class ExpandScans(session: SparkSession) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    if (!plan.exists(_.isInstanceOf[BoundScan])) plan
    else
      byIndex(plan).transformDown {
        case project @ Project(_, scan: BoundScan) =>
          project.copy(child = PartScan.snapshot(session, scan, project.references))
        case project @ Project(_, filter @ Filter(_, scan: BoundScan)) =>
          val wanted = project.references ++ filter.references
          project.copy(child = filter.copy(child = PartScan.snapshot(session, scan, wanted)))
        case scan: BoundScan => PartScan.snapshot(session, scan, scan.outputSet)
      }

  private def byIndex(plan: LogicalPlan): LogicalPlan = {
    val direct = lookedUp(plan)
    if (!isIndexed(direct) || !direct.exists(_.isInstanceOf[Join])) direct
    else {
      // What a condition on one side of a join says of the other, Spark infers after this rule.
      val inferred = PushDownPredicates(InferFiltersFromConstraints(direct))
      val further = lookedUp(inferred)
      joined(if (further.fastEquals(inferred)) direct else further)
    }
  }

  private def isIndexed(plan: LogicalPlan): Boolean = plan.exists {
    case scan: BoundScan => !scan.parts.json.path("indexes").isEmpty
    case _               => false
  }

  private def lookedUp(plan: LogicalPlan): LogicalPlan = plan.transformDown {
    case filter @ Filter(condition, scan: BoundScan) =>
      IndexScan.of(condition, scan).fold(filter)(rows => filter.copy(child = rows))
  }

  private def joined(plan: LogicalPlan): LogicalPlan = plan.transformUp { case join: Join =>
    IndexJoin.of(join).getOrElse(join)
  }
}
