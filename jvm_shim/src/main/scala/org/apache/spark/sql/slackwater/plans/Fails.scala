package org.apache.spark.sql.slackwater.plans

import scala.util.control.NonFatal

import org.apache.spark.{SparkThrowable, SparkThrowableHelper}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.types.{BooleanType, DataType}

/** Whether one of `expressions` cannot be computed for a row of `children`.
  *
  * They are no children: no optimizer computes them for no row, or knows better what they are.
  */
private[plans] final case class Fails(expressions: Seq[Expression], children: Seq[Expression])
    extends Expression
    with CodegenFallback {
  override def nullable: Boolean = false
  override def dataType: DataType = BooleanType

  override def eval(input: InternalRow): Any = {
    val row = new GenericInternalRow(children.map(_.eval(input)).toArray[Any])
    Fails.raised(expressions, row).nonEmpty
  }

  override protected def withNewChildrenInternal(newChildren: IndexedSeq[Expression]): Fails =
    copy(children = newChildren)
}

private[plans] object Fails {

  /** What the first expression raises that raises something because of the row. */
  def raised(expressions: Seq[Expression], row: InternalRow): Option[Throwable] =
    expressions.iterator.flatMap(raised(_, row)).nextOption()

  private def raised(expression: Expression, row: InternalRow): Option[Throwable] =
    try {
      expression match {
        case generator: Generator => generator.eval(row).iterator.foreach(_ => ())
        case other                => other.eval(row)
      }
      None
    } catch {
      case defect: SparkThrowable if SparkThrowableHelper.isInternalError(defect.getCondition) =>
        None
      case NonFatal(error) => Some(error)
    }
}
