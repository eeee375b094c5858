package org.apache.spark.sql.slackwater.arrangements

import java.nio.charset.StandardCharsets

import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.types.DataType
import org.apache.spark.unsafe.types.UTF8String

/** Canonical rows of some types. A row is valid until the next one is made. */
final class Rows(types: DataType*) {
  private val projection = UnsafeProjection.create(types.toArray)

  def fields: Int = types.size

  /** Strings are Scala's. */
  def apply(values: Any*): UnsafeRow =
    projection(new GenericInternalRow(values.map(internal).toArray))

  private def internal(value: Any): Any = value match {
    case text: String   => UTF8String.fromString(text)
    case values: Seq[_] => new GenericInternalRow(values.map(internal).toArray)
    case other          => other
  }
}

object Rows {

  /** A row's bytes as something that has a cheap hash and equality. */
  type Bytes = String

  def bytes(row: UnsafeRow): Bytes = new String(row.getBytes, StandardCharsets.ISO_8859_1)
}
