package org.apache.spark.sql.slackwater.scan

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers
import org.apache.spark.sql.slackwater.values.Keys

/** The keys by which indexes find rows. A projection is for one thread. */
private[slackwater] object IndexKeys {

  /** Values that Spark takes for equal have equal bytes in this form. */
  def form(value: Expression): Expression = Keys.of(NormalizeFloatingNumbers.normalize(value))

  /** The keys of rows that have the values of the index's keys. */
  def ofValues(index: CollectionIndex): UnsafeProjection =
    projection(index.keyTypes.zipWithIndex.map { case (kind, i) =>
      form(BoundReference(i, kind, nullable = true))
    })

  /** The keys of rows as the index has them. */
  def ofRows(index: CollectionIndex): UnsafeProjection = {
    val schema = index.columns
    projection(index.keys.map { key =>
      form(key.transform { case a: Attribute =>
        BoundReference(schema.fieldIndex(a.name), a.dataType, nullable = true)
      })
    })
  }

  /** Code for few rows would take longer to make than these take. */
  def projection(expressions: Seq[Expression]): UnsafeProjection =
    InterpretedUnsafeProjection.createProjection(expressions)
}
