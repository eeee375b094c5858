package org.apache.spark.sql.slackwater.values

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers
import org.apache.spark.sql.types._

/** Values of collections in the form that all values have which are the same to a collection: 0.0
  * for -0.0, one NaN, the entries of a map by its keys.
  *
  * What a program has of a row has the bytes of what is taken away later.
  */
private[slackwater] object Canonical {
  def apply(value: Expression): Expression = inOrder(NormalizeFloatingNumbers.normalize(value))

  private def inOrder(value: Expression): Expression = value.dataType match {
    case _ if !hasMap(value.dataType) => value
    case map: MapType                 =>
      val entries = MapEntries(value)
      val each = if (hasMap(map.valueType)) Nested.elements(entries)(inOrder) else entries
      val sortable = RowOrdering.isOrderable(each.dataType)
      MapFromEntries(if (sortable) SortArray(each, Literal.TrueLiteral) else each)
    case _: ArrayType  => Nested.elements(value)(inOrder)
    case _: StructType => Nested.fields(value)(inOrder)
    case _             => value
  }

  private def hasMap(dataType: DataType): Boolean =
    dataType.existsRecursively(_.isInstanceOf[MapType])
}
