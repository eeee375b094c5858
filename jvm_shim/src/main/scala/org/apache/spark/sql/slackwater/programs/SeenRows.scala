package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/** What a step sees of the rows of an arrangement that has more of them, or more columns: each row is
  * filtered and projected when it is found. Not thread-safe.
  */
private[slackwater] final class SeenRows(stages: IndexedSeq[SeenRows.Stage]) {

  /** Whether it sees all rows. */
  val areAll: Boolean = stages.forall(_.isOfEach)

  /** Valid until the next call; null: it does not see the row. */
  def apply(row: UnsafeRow): UnsafeRow = {
    var seen = row
    var i = 0
    while (i < stages.length && seen != null) {
      seen = stages(i).apply(seen)
      i += 1
    }
    seen
  }
}

private[slackwater] object SeenRows {
  val all = new SeenRows(IndexedSeq.empty)

  /** @param isOfEach
    *   whether each row has one
    * @param apply
    *   one row for a row; null: none
    */
  final class Stage(val isOfEach: Boolean, val apply: UnsafeRow => UnsafeRow)

  def filtered(condition: Condition): Stage =
    new Stage(false, row => if (condition(row)) row else null)

  def projected(values: Evaluation): Stage = new Stage(true, row => values(row))
}
