package org.apache.spark.sql.slackwater.values

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.types._

/** What rows are grouped, partitioned and joined by: equal values have the same bytes there, and
  * others do not.
  */
private[slackwater] object Keys {

  /** The form of a value in which equal ones have the same bytes. */
  def of(value: Expression): Expression =
    if (isMade(value)) Comparable(value) else value

  /** Whether that form is another than the value. */
  def isMade(value: Expression): Boolean =
    Comparable.isNeeded(value.dataType) &&
      RowOrdering.isOrderable(Comparable(value).dataType)

  /** Bytes in which values that are equal differ if they are not the same. */
  def bytes(value: Expression): Expression =
    if (Comparable.isCollated(value.dataType)) Cast(value, BinaryType) else RowBytes(Seq(value))
}
