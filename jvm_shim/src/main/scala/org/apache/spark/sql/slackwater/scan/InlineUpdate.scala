package org.apache.spark.sql.slackwater.scan

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.slackwater.protocol.Wire
import org.apache.spark.sql.slackwater.scan.logical.BoundParts
import org.apache.spark.sql.types.StructType

/** One inline update. */
private[slackwater] final case class InlineUpdate(row: UnsafeRow, time: Long, diff: Long)

private[slackwater] object InlineUpdates {

  /** The updates with the columns of `schema`, which are some of the parts' columns. */
  def of(parts: BoundParts, schema: StructType): Seq[InlineUpdate] = {
    val width = parts.schema.length
    val whole = Wire.updateSchema(parts.schema)
    val project = UnsafeProjection.create(schema.fields.toIndexedSeq.map { field =>
      BoundReference(parts.schema.fieldIndex(field.name), field.dataType, nullable = true)
    })
    Wire.decode(Wire.inlineStreams(parts.json), whole).map { update =>
      InlineUpdate(project(update).copy(), update.getLong(width), update.getLong(width + 1))
    }
  }
}
