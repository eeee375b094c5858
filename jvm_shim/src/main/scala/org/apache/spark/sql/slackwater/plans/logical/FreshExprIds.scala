package org.apache.spark.sql.slackwater.plans.logical

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
import org.apache.spark.sql.catalyst.plans.ExistenceJoin
import org.apache.spark.sql.catalyst.plans.logical.{Join, LogicalPlan, UnionLoop}

/** A plan under new ids, so that it can be in a plan beside the one that it was made of. */
private[plans] object FreshExprIds {
  def apply(plan: LogicalPlan): LogicalPlan = {
    val ids = mutable.HashMap.empty[ExprId, ExprId]
    def fresh(id: ExprId): ExprId = ids.getOrElseUpdate(id, NamedExpression.newExprId)
    plan
      .transformAllExpressions {
        case a: AttributeReference  => a.withExprId(fresh(a.exprId))
        case a: AggregateExpression => a.copy(resultId = fresh(a.resultId))
        case a: Alias               =>
          Alias(a.child, a.name)(
            fresh(a.exprId),
            a.qualifier,
            a.explicitMetadata,
            a.nonInheritableMetadataKeys
          )
      }
      .transformUp {
        // These keep ids outside of expressions.
        case join: Join =>
          join.joinType match {
            case ExistenceJoin(exists) =>
              join.copy(joinType = ExistenceJoin(exists.withExprId(fresh(exists.exprId))))
            case _ => join
          }
        case loop: UnionLoop => loop.copy(outputAttrIds = loop.outputAttrIds.map(fresh))
      }
  }
}
