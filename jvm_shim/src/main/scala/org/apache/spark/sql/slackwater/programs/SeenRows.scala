package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/** What a step sees of the rows of an arrangement that has more of them, or more columns: each row is
  * filtered and projected when it is found. Not thread-safe.
  */
private[slackwater] final class SeenRows(stages: IndexedSeq[SeenRows.Stage]) {

  /** Valid until the next call; null: it does not see the row. */
  def apply(row: UnsafeRow): UnsafeRow = {
    var seen = row
    var i = 0
    while (i < stages.length && seen != null) {
      seen = stages(i)(seen)
      i += 1
    }
    seen
  }
}

private[slackwater] object SeenRows {
  val all = new SeenRows(IndexedSeq.empty)

  /** One row for a row; null: none. */
  type Stage = UnsafeRow => UnsafeRow

  def filtered(condition: Condition): Stage = row => if (condition(row)) row else null

  def projected(values: Evaluation): Stage = row => values(row)
}
