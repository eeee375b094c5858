package org.apache.spark.sql.slackwater.values

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.types.{BinaryType, DataType}

/** Rows as bytes: equal for the values that are the same to a collection, and for no others,
  * whatever their types have for equal.
  */
private[slackwater] final case class RowBytes(children: Seq[Expression])
    extends Expression
    with CodegenFallback {
  @transient private lazy val project =
    InterpretedUnsafeProjection.createProjection(children.zipWithIndex.map { case (child, i) =>
      Canonical(BoundReference(i, child.dataType, nullable = true))
    })

  override def nullable: Boolean = false
  override def dataType: DataType = BinaryType
  override def prettyName: String = "row_bytes"

  /** Its projection writes every row into one buffer. */
  override def stateful: Boolean = true

  /** A row gives away its buffer where it fills it, so it is copied first. */
  override def eval(input: InternalRow): Any =
    project(new GenericInternalRow(children.map(_.eval(input)).toArray[Any])).copy().getBytes

  override protected def withNewChildrenInternal(
      newChildren: IndexedSeq[Expression]
  ): RowBytes = copy(newChildren)
}
