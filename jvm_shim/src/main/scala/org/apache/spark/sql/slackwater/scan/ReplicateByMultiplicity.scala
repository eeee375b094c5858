package org.apache.spark.sql.slackwater.scan

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  AttributeReference,
  Expression,
  Generator,
  GenericInternalRow,
  UnaryExpression
}
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.catalyst.plans.logical.{Generate, LogicalPlan}
import org.apache.spark.sql.types.{BooleanType, StructType}

/** As many rows as the multiplicity says, but at most `atMost`, one after the other: they are never
  * in memory at once, and a task that is killed makes no more of them.
  */
private[scan] final case class ReplicateByMultiplicity(
    child: Expression,
    atMost: Long = Long.MaxValue
) extends UnaryExpression
    with Generator
    with CodegenFallback {

  /** What EXPLAIN calls it. */
  override def prettyName: String = "copies"
  override def elementSchema: StructType =
    new StructType().add("copy", BooleanType, nullable = false)

  override def eval(input: InternalRow): IterableOnce[InternalRow] = {
    val multiplicity = child.eval(input).asInstanceOf[Long]
    if (multiplicity < 0) throw NegativeMultiplicity("a row of a collection")
    val task = Option(TaskContext.get())
    new Iterator[InternalRow] {
      private var left = math.min(multiplicity, atMost)
      override def hasNext: Boolean = left > 0
      override def next(): InternalRow = {
        left -= 1
        task.foreach(_.killTaskIfInterrupted())
        ReplicateByMultiplicity.row
      }
    }
  }

  override protected def withNewChildInternal(newChild: Expression): ReplicateByMultiplicity = copy(
    newChild
  )
}

private[scan] object ReplicateByMultiplicity {
  private val row = new GenericInternalRow(Array[Any](true))

  /** Each row of `rows` as often as `multiplicity` says, and a column behind its own. */
  def of(rows: LogicalPlan, multiplicity: Expression): LogicalPlan = {
    val generator = ReplicateByMultiplicity(multiplicity)
    val copy = AttributeReference("copy", BooleanType, nullable = false)()
    Generate(generator, Nil, outer = false, None, Seq(copy), rows)
  }
}
