package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.MaxMinByK
import org.apache.spark.sql.catalyst.plans.{Inner, LeftOuter, NearestByDistance}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule

/** The nearest rows are looked for once for all rows of the left side that are ranked alike, and
  * joined to them.
  *
  * Spark's own rule (`RewriteNearestByJoin`) tells rows apart by random numbers.
  */
private[plans] object JoinNearest extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformUp {
    case join: NearestByJoin if ranked(join).forall(a => RowOrdering.isOrderable(a.dataType)) =>
      joined(join)
  }

  private def ranked(join: NearestByJoin): Seq[Attribute] =
    join.left.output.filter(join.rankingExpression.references.contains)

  private def joined(join: NearestByJoin): LogicalPlan = {
    val rows = ranked(join)
    val copies = rows.map(a => Alias(a, a.name)())
    val keys = copies.map(_.toAttribute)
    val places = AttributeMap(rows.zip(keys))
    val ranking = join.rankingExpression.transform { case a: Attribute => places.getOrElse(a, a) }
    val nearest = MaxMinByK(
      CreateStruct(join.right.output),
      ranking,
      Literal(join.numResults),
      reverse = join.direction == NearestByDistance
    )
    val found = Alias(nearest.toAggregateExpression(), "nearest")()
    val pairs =
      Join(Aggregate(rows, copies, join.left), join.right, join.joinType, None, JoinHint.NONE)
    val same = rows.zip(keys).map { case (row, key) => EqualNullSafe(row, key) }
    val beside = Join(
      join.left,
      Aggregate(keys, keys :+ found, pairs),
      Inner,
      same.reduceOption[Expression](And),
      JoinHint.NONE
    )
    val inlined = Generate(
      Inline(found.toAttribute),
      Nil,
      outer = join.joinType == LeftOuter,
      None,
      join.right.output.map(_.withNullability(true)),
      beside
    )
    Project(join.output, inlined)
  }
}
