package org.apache.spark.sql.slackwater.scan.optimizer

import org.apache.spark.sql.catalyst.optimizer.{InferFiltersFromConstraints, PushDownPredicates}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.scan.{
  Changes,
  Finishing,
  IndexJoin,
  IndexScan,
  PartScan,
  Sources
}
import org.apache.spark.sql.slackwater.scan.logical.{BoundChanges, BoundScan, Indexed, IndexedView}

/** Replaces bound scans, and views that have indexes, by what an index finds for their conditions, or
  * by plans over their parts and by their queries.
  *
  * Spark prunes columns before this rule runs, and leaves the projection above the leaf. It could
  * not prune below a consolidation, which groups by every column that it has.
  */
private[slackwater] final case class ExpandScans(session: SparkSession) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    if (plan.exists(_.isInstanceOf[IndexedView])) withoutViews(plan)
    else if (!plan.exists(isBound)) plan
    else
      byIndex(plan).transformDown {
        case project @ Project(_, scan: BoundScan) =>
          project.copy(child = PartScan.snapshot(session, scan, project.references))
        case project @ Project(_, filter @ Filter(_, scan: BoundScan)) =>
          val wanted = project.references ++ filter.references
          project.copy(child = filter.copy(child = PartScan.snapshot(session, scan, wanted)))
        case scan: BoundScan       => PartScan.snapshot(session, scan, scan.outputSet)
        case changed: BoundChanges =>
          val columns = Sources.stored(changed.scan.schema)
          new Changes(session, changed.scan, columns).log(changed.after, changed.output)
      }

  private def isBound(node: LogicalPlan): Boolean =
    node.isInstanceOf[BoundScan] || node.isInstanceOf[BoundChanges]

  /** The plan without the outermost views that have indexes. Of those whose rows no index has, the
    * queries are there, into which Spark pushes what is asked before this rule comes to them again.
    */
  private def withoutViews(plan: LogicalPlan): LogicalPlan = {
    def expanded(part: LogicalPlan): LogicalPlan = part match {
      case Finishing(view, wanted) =>
        val rows = IndexScan.all(session, view, wanted).getOrElse(view.child)
        part.transformDown { case v: IndexedView if v eq view => rows }
      case other => other.mapChildren(expanded)
    }
    expanded(byIndex(plan))
  }

  private def byIndex(plan: LogicalPlan): LogicalPlan = {
    val found = inferred(plan)
    if (isIndexed(found)) joined(found) else found
  }

  /** The plan with what indexes find for its conditions, also for those that follow from others. */
  private def inferred(plan: LogicalPlan): LogicalPlan = {
    val direct = lookedUp(plan)
    if (!isIndexed(direct) || !direct.exists(_.isInstanceOf[Join])) direct
    else {
      // What a condition on one side of a join says of the other, Spark infers after this rule.
      val further = PushDownPredicates(InferFiltersFromConstraints(direct))
      val found = lookedUp(further)
      if (found.fastEquals(further)) direct else found
    }
  }

  private def isIndexed(plan: LogicalPlan): Boolean = plan.exists {
    case each: Indexed => each.isIndexed
    case _             => false
  }

  private def lookedUp(plan: LogicalPlan): LogicalPlan = plan.transformDown {
    case filter @ Filter(condition, relation: Indexed) =>
      IndexScan.of(session, condition, relation).fold(filter)(rows => filter.copy(child = rows))
  }

  private def joined(plan: LogicalPlan): LogicalPlan = plan.transformUp { case join: Join =>
    IndexJoin.of(session, join).getOrElse(join)
  }
}
