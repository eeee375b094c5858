package org.apache.spark.sql.slackwater.write

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Expression, NonSQLExpression, UnaryExpression}
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode, FalseLiteral}
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.slackwater.protocol.DataErrors
import org.apache.spark.sql.types.DataType

/** The value of a NOT NULL column, or of a NOT NULL field inside one, that is about to be written.
  *
  * Raises SLACKWATER_NOT_NULL_VIOLATION for NULL.
  */
private[slackwater] case class NotNull(child: Expression, column: NotNullColumn)
    extends UnaryExpression
    with NonSQLExpression {
  override def dataType: DataType = child.dataType
  override def nullable: Boolean = false
  override def prettyName: String = "not_null"
  override def flatArguments: Iterator[Any] = Iterator(child)

  override def eval(row: InternalRow): Any = {
    val value = child.eval(row)
    if (value == null) column.violated()
    value
  }

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val value = child.genCode(ctx)
    val named = ctx.addReferenceObj("notNull", column)
    val code = value.code + code"if (${value.isNull}) { $named.violated(); }"
    ev.copy(code = code, isNull = FalseLiteral, value = value.value)
  }

  override protected def withNewChildInternal(changed: Expression): NotNull = copy(child = changed)
}

/** `path` is the column and, below it, the way to the field. */
final case class NotNullColumn(table: String, path: String) {
  def violated(): Unit = throw DataErrors.notNull(table, path)
}
