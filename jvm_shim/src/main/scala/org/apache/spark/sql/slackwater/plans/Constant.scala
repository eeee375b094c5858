package org.apache.spark.sql.slackwater.plans

import org.apache.spark.sql.catalyst.plans.logical._

/** The rows of a leaf that has its data in the plan. */
private[plans] final case class Constant(count: Long, digest: String)

private[plans] object Constant {
  def unapply(plan: LogicalPlan): Option[Constant] = plan match {
    case _: OneRowRelation       => Some(Constant(1, "one row"))
    case relation: LocalRelation =>
      val types = relation.output.map(_.dataType)
      Some(Constant(relation.data.size, Digest.ofRows(relation.data, types)))
    case range: Range =>
      Some(Constant(range.numElements.toLong, s"${range.start}, ${range.end}, ${range.step}"))
    case _ => None
  }
}
