package org.apache.spark.sql.slackwater.plans

import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, Expression, ExprId}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.plans.logical.CollectionSlot
import org.apache.spark.sql.slackwater.plans.optimizer.Normalise

/** A collection with all its columns, and the keys of an index on it.
  *
  * @param name
  *   that of the index, for people
  * @param keys
  *   over the columns of `rows`
  */
private[slackwater] final case class KeyedCollection(
    name: String,
    rows: CollectionSlot,
    keys: Seq[Expression]
)

private[slackwater] object KeyedCollection {

  /** That of the analyzed query of an index, whose last `keys` columns are the keys; None: they are
    * not computed of the rows of one collection alone.
    */
  def of(
      session: SparkSession,
      name: String,
      analyzed: LogicalPlan,
      keys: Int
  ): Option[KeyedCollection] =
    Normalise(session, analyzed) match {
      case Project(list, Read(slot, columns)) if slot.fields.size == list.size - keys =>
        val values = list.takeRight(keys).map {
          case Alias(value, _) => value
          case column          => column
        }
        // Of what is computed as it is read, an index of a collection has the columns alone as keys.
        Option.when(columns.isEmpty || values.forall(_.isInstanceOf[Attribute])) {
          val stored = values.map(_.transform {
            case a: Attribute if columns.contains(a.exprId) => columns(a.exprId)
          })
          KeyedCollection(name, slot, stored)
        }
      case _ => None
    }

  /** A collection, and what of its columns a query reads: CHAR is padded. */
  private object Read {
    def unapply(plan: LogicalPlan): Option[(CollectionSlot, Map[ExprId, Expression])] = plan match {
      case slot: CollectionSlot => Some((slot, Map.empty))
      case Project(list, slot: CollectionSlot) if list.size == slot.fields.size =>
        Some((slot, list.collect { case made: Alias => made.exprId -> made.child }.toMap))
      case _ => None
    }
  }
}
