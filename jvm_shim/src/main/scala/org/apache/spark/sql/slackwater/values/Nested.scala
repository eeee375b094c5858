package org.apache.spark.sql.slackwater.values

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.types.{ArrayType, StructType}

/** Values whose inner values are made anew. NULL stays NULL. */
private[slackwater] object Nested {

  /** An array with what `made` gives for each element. */
  def elements(array: Expression)(made: Expression => Expression): Expression = {
    val of = array.dataType.asInstanceOf[ArrayType]
    val element = NamedLambdaVariable("element", of.elementType, of.containsNull)
    ArrayTransform(array, LambdaFunction(made(element), Seq(element)))
  }

  /** A struct with what `made` gives for each field. */
  def fields(struct: Expression)(made: Expression => Expression): Expression = {
    val of = struct.dataType.asInstanceOf[StructType]
    val values = of.fields.toIndexedSeq.zipWithIndex.flatMap { case (field, i) =>
      Seq(Literal(field.name), made(GetStructField(struct, i, Some(field.name))))
    }
    unlessNull(struct)(CreateNamedStruct(values))
  }

  /** `made`, or NULL where `value` is. */
  def unlessNull(value: Expression)(made: Expression): Expression =
    If(IsNull(value), Literal(null, made.dataType), made)
}
