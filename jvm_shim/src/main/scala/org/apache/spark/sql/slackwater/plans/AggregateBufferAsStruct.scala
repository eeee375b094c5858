package org.apache.spark.sql.slackwater.plans

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.types.{DataType, StructField, StructType}

/** What `function` has gathered of a group before it makes its value of that: a struct of its
  * buffer.
  */
private[plans] final case class AggregateBufferAsStruct(function: DeclarativeAggregate)
    extends DeclarativeAggregate {
  override def children: Seq[Expression] = function.children
  override def nullable: Boolean = false
  override def dataType: DataType = StructType(
    function.aggBufferAttributes.map(each => StructField(each.name, each.dataType, each.nullable))
  )
  override def aggBufferAttributes: Seq[AttributeReference] = function.aggBufferAttributes
  override lazy val initialValues: Seq[Expression] = function.initialValues
  override lazy val updateExpressions: Seq[Expression] = function.updateExpressions
  override lazy val mergeExpressions: Seq[Expression] = function.mergeExpressions

  // Those that the function's own merging speaks of.
  override lazy val inputAggBufferAttributes: Seq[AttributeReference] =
    function.inputAggBufferAttributes

  override lazy val evaluateExpression: Expression =
    CreateNamedStruct(aggBufferAttributes.flatMap(each => Seq(Literal(each.name), each)))

  /** How the function makes its value, over its buffer. */
  def end: Expression = function.evaluateExpression

  /** The same over that struct. */
  def endOf(buffer: Attribute): Expression = {
    val places = aggBufferAttributes.map(_.exprId).zipWithIndex.toMap
    end.transform {
      case own: AttributeReference if places.contains(own.exprId) =>
        GetStructField(buffer, places(own.exprId))
    }
  }

  override protected def withNewChildrenInternal(
      children: IndexedSeq[Expression]
  ): AggregateBufferAsStruct =
    AggregateBufferAsStruct(function.withNewChildren(children).asInstanceOf[DeclarativeAggregate])
}

private[plans] object AggregateBufferAsStruct {

  /** None where nothing fails but for what is taken of a row. */
  def of(function: AggregateFunction): Option[AggregateBufferAsStruct] = function match {
    case _: Sum | _: Average               => None // they may fail before they end
    case declarative: DeclarativeAggregate => Some(AggregateBufferAsStruct(declarative))
    case _                                 => None
  }
}
