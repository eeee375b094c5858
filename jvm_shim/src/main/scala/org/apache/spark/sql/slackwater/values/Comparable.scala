package org.apache.spark.sql.slackwater.values

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.types._

/** Values in forms whose bytes are the same for values that Spark takes for equal. */
private[slackwater] object Comparable {

  /** Whether values of a type may be the same, or be compared, though their bytes differ. */
  def isNeeded(dataType: DataType): Boolean =
    dataType.existsRecursively(t => t.isInstanceOf[MapType] || isCollated(t))

  /** Whether the same values of a type may differ in their bytes. */
  def differInBytes(dataType: DataType): Boolean = dataType.existsRecursively {
    case FloatType | DoubleType | _: MapType => true
    case other                               => isCollated(other)
  }

  /** Whether texts may be equal that are not the same. */
  def isCollated(dataType: DataType): Boolean = dataType match {
    case text: StringType => !text.supportsBinaryEquality
    case _                => false
  }

  /** Whether Spark's interpreted projections leave texts of a type in the row that they come in, which
    * is used again (`InternalRow.getWriter`). Others are copied, as all are by generated code.
    */
  def staysInRow(dataType: DataType): Boolean = dataType match {
    case text: StringType => text != StringType
    case _                => false
  }

  /** `value` with maps as arrays of entries, sorted by key, and the collation's key of each text that
    * has a collation.
    *
    * Spark's own form for grouping makes a zero of a NULL among a map's primitive values.
    */
  def apply(value: Expression): Expression =
    value.dataType match {
      case map: MapType =>
        val entries = MapEntries(value)
        val each =
          if (Seq(map.keyType, map.valueType).exists(isNeeded)) Nested.elements(entries)(apply)
          else entries
        SortArray(each, Literal.TrueLiteral)
      case text if isCollated(text)               => CollationKey(value)
      case array: ArrayType if isNeeded(array)    => Nested.elements(value)(apply)
      case struct: StructType if isNeeded(struct) => Nested.fields(value)(apply)
      case _                                      => value
    }

  /** A value without collations, out of the form that `apply` made of it. */
  def restored(form: Expression, dataType: DataType): Expression = dataType match {
    case map: MapType =>
      val entry = StructType(
        Seq(StructField("key", map.keyType, nullable = false), StructField("value", map.valueType))
      )
      MapFromEntries(restored(form, ArrayType(entry, containsNull = false)))
    case array: ArrayType if isNeeded(array) =>
      Nested.elements(form)(restored(_, array.elementType))
    case struct: StructType if isNeeded(struct) =>
      val types = struct.fields.map(_.dataType).iterator
      Nested.fields(form)(restored(_, types.next()))
    case _ => form
  }
}
