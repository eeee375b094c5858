package org.apache.spark.sql.slackwater.plans.expressions

import org.apache.spark.sql.slackwater.values.Comparable
import org.apache.spark.sql.types._

/** Why equal values of a type may differ in their bytes, or cannot be compared. */
private[plans] object KeyIssues {
  def of(dataType: DataType): Seq[String] = Seq(
    "collation" -> dataType.existsRecursively(Comparable.isCollated),
    "floating" -> has(dataType) { case _: FloatType | _: DoubleType => true },
    "map" -> has(dataType) { case _: MapType => true },
    "variant" -> has(dataType) { case _: VariantType => true }
  ).collect { case (name, true) => name }

  private def has(dataType: DataType)(test: PartialFunction[DataType, Boolean]): Boolean =
    dataType.existsRecursively(test.applyOrElse(_, (_: DataType) => false))
}
