package org.apache.spark.sql.slackwater.values

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.types.{BinaryType, DataType}

/** Rows as bytes, which differ where rows differ, whatever their types have for equal. */
private[slackwater] final case class RowBytes(children: Seq[Expression])
    extends Expression
    with CodegenFallback {
  @transient private lazy val project =
    InterpretedUnsafeProjection.createProjection(children.zipWithIndex.map { case (child, i) =>
      BoundReference(i, child.dataType, nullable = true)
    })

  override def nullable: Boolean = false
  override def dataType: DataType = BinaryType
  override def prettyName: String = "row_bytes"

  override def eval(input: InternalRow): Any =
    project(new GenericInternalRow(children.map(_.eval(input)).toArray[Any])).getBytes

  override protected def withNewChildrenInternal(
      newChildren: IndexedSeq[Expression]
  ): RowBytes = copy(newChildren)
}
