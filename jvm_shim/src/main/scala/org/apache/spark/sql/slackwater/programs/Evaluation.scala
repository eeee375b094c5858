package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  BasePredicate,
  Expression,
  InterpretedUnsafeProjection,
  Predicate,
  UnsafeProjection,
  UnsafeRow
}

/** Expressions over bound rows. Not thread-safe.
  *
  * Generated code takes longer to make than few rows to compute: it is made when many have come.
  */
private[slackwater] final class Evaluation(expressions: Seq[Expression]) {
  private var rows = 0
  private var project: UnsafeProjection = InterpretedUnsafeProjection.createProjection(expressions)

  /** Valid until the next call. */
  def apply(row: InternalRow): UnsafeRow = {
    if (rows < Evaluation.rowsBeforeCode) {
      rows += 1
      if (rows == Evaluation.rowsBeforeCode) project = UnsafeProjection.create(expressions)
    }
    project(row)
  }
}

private[slackwater] object Evaluation {
  val rowsBeforeCode = 20000
}

/** A condition over bound rows; NULL is false. Not thread-safe. */
private[slackwater] final class Condition(expression: Expression) {
  private var rows = 0
  private var predicate: BasePredicate = Predicate.createInterpreted(expression)

  def apply(row: InternalRow): Boolean = {
    if (rows < Evaluation.rowsBeforeCode) {
      rows += 1
      if (rows == Evaluation.rowsBeforeCode) predicate = Predicate.create(expression)
    }
    predicate.eval(row)
  }
}
