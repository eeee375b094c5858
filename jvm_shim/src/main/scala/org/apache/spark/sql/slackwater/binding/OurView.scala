package org.apache.spark.sql.slackwater.binding

import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, View}
import org.apache.spark.sql.slackwater.catalog.Definitions

/** A plain view of ours that Spark has expanded, by its id. Under one id it always means the same. */
private[slackwater] object OurView {
  def unapply(plan: LogicalPlan): Option[String] = plan match {
    case view: View if !view.isTempView => view.desc.viewSQLConfigs.get(Definitions.viewId)
    case _                              => None
  }
}
