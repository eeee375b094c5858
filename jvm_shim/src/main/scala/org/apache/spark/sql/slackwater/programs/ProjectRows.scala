package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  Alias,
  AttributeReference,
  BoundReference,
  Expression,
  GenericInternalRow,
  JoinedRow,
  PythonUDF,
  UnsafeProjection
}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project}
import org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes
import org.apache.spark.sql.slackwater.protocol.Wire
import org.apache.spark.sql.slackwater.scan.logical.SlotRows
import org.apache.spark.sql.types.{DataType, LongType, StructType}

/** A projection that only an operator of Spark's can compute, as it calls Python.
  *
  * The promise of `MapRows`. All rows of a tick are one call of `projected`.
  */
private[slackwater] final class ProjectRows(in: Int, types: Seq[DataType], projected: Compiled)
    extends Operator {
  private val (time, diff) = (types.size, types.size + 1)
  private val cut = UnsafeProjection.create(types.zipWithIndex.map { case (dataType, i) =>
    BoundReference(i, dataType, nullable = true)
  })

  override def inputs: Seq[Int] = Seq(in)
  override def isLinear: Boolean = true
  override def run(tick: TickContext, metrics: OperatorMetrics): Updates = {
    val out = new Updates(tick.budget)
    projected.run(Map(ProjectRows.slot -> (() => timed(tick(in))))).foreach { row =>
      out.add(cut(row).copy(), row.getLong(time), row.getLong(diff))
    }
    out
  }

  private def timed(updates: Updates): Iterator[InternalRow] = {
    val rows = Seq.newBuilder[InternalRow]
    updates.foreach { (row, time, diff) =>
      rows += new JoinedRow(row, new GenericInternalRow(Array[Any](time, diff)))
    }
    rows.result().iterator
  }
}

private[slackwater] object ProjectRows {
  private val slot = "projected"

  def isNeeded(expression: Expression): Boolean = expression.exists(PythonUDF.isScalarPythonUDF)

  /** The projection over a slot with rows of `input`, each with its time and diff behind it.
    *
    * @param made
    *   over bound rows
    */
  def plan(made: Seq[Expression], input: StructType): LogicalPlan = {
    val columns = toAttributes(input)
    val times = Seq(Wire.TimeColumn, Wire.DiffColumn)
      .map(name => AttributeReference(name, LongType, nullable = false)())
    val values = made.zipWithIndex.map { case (expression, i) =>
      val over = expression.transform { case BoundReference(at, _, _) => columns(at) }
      Alias(over, s"v$i")()
    }
    Project(values ++ times, SlotRows(slot, columns ++ times))
  }
}
