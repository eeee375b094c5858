package org.apache.spark.sql.slackwater.binding.analysis

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule

/** MERGE WITH SCHEMA EVOLUTION: columns that the table does not have would be left out in silence.
  *
  * It is a rule for hints because Spark takes the clause out of a MERGE as soon as it has the table.
  */
private[slackwater] final case class RefuseEvolution(session: SparkSession)
    extends Rule[LogicalPlan]
    with NamesOfSession {

  override def apply(plan: LogicalPlan): LogicalPlan = {
    plan match {
      case ctes: UnresolvedWith                               => apply(ctes.child)
      case merge: MergeIntoTable if merge.withSchemaEvolution => refuse(merge.targetTable)
      case _                                                  =>
    }
    plan
  }

  private def refuse(target: LogicalPlan): Unit = target.foreach {
    case unresolved: UnresolvedRelation =>
      unresolved.multipartIdentifier match {
        case CatalogAndIdentifier(catalog, name) if isOurs(catalog) => refuseEvolution(full(name))
        case _                                                      =>
      }
    case _ =>
  }
}
