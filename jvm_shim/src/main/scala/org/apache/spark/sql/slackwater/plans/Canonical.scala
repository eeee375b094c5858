package org.apache.spark.sql.slackwater.plans

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
      val each = if (hasMap(map.valueType)) elementsInOrder(entries) else entries
      val sortable = RowOrdering.isOrderable(each.dataType)
      MapFromEntries(if (sortable) SortArray(each, Literal.TrueLiteral) else each)
    case _: ArrayType       => elementsInOrder(value)
    case struct: StructType =>
      val fields = struct.fields.toIndexedSeq.zipWithIndex.flatMap { case (field, i) =>
        Seq(Literal(field.name), inOrder(GetStructField(value, i, Some(field.name))))
      }
      val whole = CreateNamedStruct(fields)
      If(IsNull(value), Literal(null, whole.dataType), whole)
    case _ => value
  }

  private def elementsInOrder(array: Expression): Expression = {
    val of = array.dataType.asInstanceOf[ArrayType]
    val element = NamedLambdaVariable("element", of.elementType, of.containsNull)
    ArrayTransform(array, LambdaFunction(inOrder(element), Seq(element)))
  }

  private def hasMap(dataType: DataType): Boolean =
    dataType.existsRecursively(_.isInstanceOf[MapType])
}
