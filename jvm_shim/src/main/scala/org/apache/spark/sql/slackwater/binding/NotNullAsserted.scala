package org.apache.spark.sql.slackwater.binding

import org.apache.spark.sql.catalyst.{FunctionIdentifier, InternalRow}
import org.apache.spark.sql.catalyst.expressions.{
  Expression,
  ExpressionInfo,
  Literal,
  UnaryExpression
}
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode, FalseLiteral}
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.errors.QueryCompilationErrors
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.slackwater.process.SparkSessions
import org.apache.spark.sql.slackwater.protocol.DataErrors
import org.apache.spark.sql.types.DataType

/** The value of a column that a view's definition says is never NULL; an error where it is. */
case class NotNullAsserted(child: Expression, view: String, column: String)
    extends UnaryExpression {
  override def nullable: Boolean = false
  override def dataType: DataType = child.dataType
  override def prettyName: String = NotNullAsserted.Name

  override def eval(input: InternalRow): Any = {
    val value = child.eval(input)
    if (value == null) fail()
    value
  }

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val value = child.genCode(ctx)
    val asserted = ctx.addReferenceObj("asserted", this)
    val checked = code"${value.code}\nif (${value.isNull}) $asserted.fail();"
    ev.copy(code = checked, isNull = FalseLiteral, value = value.value)
  }

  /** Generated code calls it: Java would have it declare what it throws. */
  def fail(): Unit = throw DataErrors.nullAsserted(view, column)

  override protected def withNewChildInternal(newChild: Expression): NotNullAsserted =
    copy(child = newChild)
}

object NotNullAsserted {

  /** Definitions of views are the only ones that name it. */
  val Name = "slackwater_not_null"

  val description: MzNow.Description = (
    FunctionIdentifier(Name),
    new ExpressionInfo(classOf[NotNullAsserted].getName, Name),
    {
      case _ if !SparkSessions.isEnabled(SQLConf.get) => throw MzNow.unknown(Name)
      case Seq(value, Literal(view, _), Literal(column, _)) if view != null && column != null =>
        NotNullAsserted(value, view.toString, column.toString)
      case arguments => throw QueryCompilationErrors.wrongNumArgsError(Name, Seq(3), arguments.size)
    }
  )
}
