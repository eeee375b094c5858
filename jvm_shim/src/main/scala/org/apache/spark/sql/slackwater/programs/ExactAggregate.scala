package org.apache.spark.sql.slackwater.programs

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Expression, GenericInternalRow}
import org.apache.spark.sql.catalyst.expressions.aggregate.{
  AggregateExpression,
  AggregateFunction,
  Average,
  ImperativeAggregate,
  Sum,
  TypedImperativeAggregate
}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.slackwater.plans.expressions.Moments
import org.apache.spark.sql.types.{DataType, DoubleType, FloatType, IntegralType}

/** A sum, an average, or a moment about the mean as a maintained view has it, in a job of Spark: of
  * doubles the exact sum, rounded once, which no order of the rows changes.
  *
  * @param child
  *   what the function takes in of a row
  */
private[slackwater] final case class ExactAggregate(
    function: AggregateFunction,
    child: Expression,
    override val mutableAggBufferOffset: Int = 0,
    override val inputAggBufferOffset: Int = 0
) extends TypedImperativeAggregate[Accumulator] {
  override def children: Seq[Expression] = Seq(child)
  override def nullable: Boolean = true
  override def dataType: DataType = function.dataType
  override def prettyName: String = function.prettyName

  private lazy val accumulated = Accumulated(function, child)

  override def createAggregationBuffer(): Accumulator = accumulated.start()

  override def update(buffer: Accumulator, input: InternalRow): Accumulator = {
    buffer.add(new GenericInternalRow(Array[Any](child.eval(input))), 0, 1L)
    buffer
  }

  override def merge(buffer: Accumulator, input: Accumulator): Accumulator = {
    buffer.merge(input)
    buffer
  }

  override def eval(buffer: Accumulator): Any = buffer.result

  override def serialize(buffer: Accumulator): Array[Byte] = {
    val bytes = new ByteArrayOutputStream(64)
    buffer.write(new DataOutputStream(bytes))
    bytes.toByteArray
  }

  override def deserialize(bytes: Array[Byte]): Accumulator = {
    val buffer = createAggregationBuffer()
    buffer.read(new DataInputStream(new ByteArrayInputStream(bytes)))
    buffer
  }

  override def withNewMutableAggBufferOffset(offset: Int): ImperativeAggregate =
    copy(mutableAggBufferOffset = offset)
  override def withNewInputAggBufferOffset(offset: Int): ImperativeAggregate =
    copy(inputAggBufferOffset = offset)
  override protected def withNewChildrenInternal(
      newChildren: IndexedSeq[Expression]
  ): ExactAggregate = copy(child = newChildren.head)
}

private[slackwater] object ExactAggregate {

  /** `plan` with the sums that depend on an order replaced. */
  def in(plan: LogicalPlan): LogicalPlan = plan.transformAllExpressions {
    case whole @ AggregateExpression(function, _, false, _, _) if isInexact(function) =>
      whole.copy(aggregateFunction = ExactAggregate(function, Accumulated.taken(function)))
  }

  private def isInexact(function: AggregateFunction): Boolean = function match {
    case sum: Sum         => isFloating(sum.child.dataType)
    case average: Average =>
      isFloating(average.child.dataType) || average.child.dataType.isInstanceOf[IntegralType]
    case other => Moments.of(other).nonEmpty
  }

  private def isFloating(dataType: DataType): Boolean =
    dataType == FloatType || dataType == DoubleType
}
