package org.apache.spark.sql.slackwater.plans.optimizer

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.types.{CalendarIntervalType, DataType, MapType, VariantType}

/** Rows divided by a hash of their columns, the same way at all times. */
private[plans] object Buckets {

  /** The number of a row's bucket, of `size`, a power of two. */
  def of(columns: Seq[Expression], size: Int): Option[Expression] = {
    val hashed = columns.filter(column => !column.dataType.existsRecursively(isNotHashed))
    Option.when(hashed.nonEmpty)(
      BitwiseAnd(new Murmur3Hash(hashed), Literal(size - 1))
    )
  }

  private def isNotHashed(dataType: DataType): Boolean = dataType match {
    case _: MapType | _: VariantType | CalendarIntervalType => true
    case _                                                  => false
  }
}
