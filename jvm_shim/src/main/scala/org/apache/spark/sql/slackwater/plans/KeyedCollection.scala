package org.apache.spark.sql.slackwater.plans

import org.apache.spark.sql.catalyst.expressions.{Alias, Expression}
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
      case Project(list, slot: CollectionSlot) if slot.fields.size == list.size - keys =>
        Some(
          KeyedCollection(
            name,
            slot,
            list.takeRight(keys).map {
              case Alias(value, _) => value
              case column          => column
            }
          )
        )
      case _ => None
    }
}
