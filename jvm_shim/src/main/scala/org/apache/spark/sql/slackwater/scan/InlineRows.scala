package org.apache.spark.sql.slackwater.scan

import scala.util.control.NonFatal

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.MultiInstanceRelation
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{LeafExecNode, SQLExecution}
import org.apache.spark.sql.execution.metric.SQLMetrics

/** Rows that a binding carried. Unlike Spark's local relation it shows in a plan where they are
  * from, and at which time.
  */
private[slackwater] final case class InlineRows(
    label: String,
    override val output: Seq[AttributeReference],
    rows: Seq[InternalRow]
) extends LeafNode
    with MultiInstanceRelation {
  override def newInstance(): LogicalPlan = copy(output = output.map(_.newInstance()))
  override def maxRows: Option[Long] = Some(rows.size.toLong)
  override def computeStats(): Statistics =
    Statistics(
      sizeInBytes = (output.map(n => BigInt(n.dataType.defaultSize)).sum + 8) * rows.size,
      rowCount = Some(rows.size)
    )
  override protected def stringArgs: Iterator[Any] = Iterator(label, output)
}

/** Computes projections and filters over inline rows at once, so that no job is needed. */
private[slackwater] object FoldInlineRows extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformUp {
    case project @ Project(columns, local: InlineRows) if columns.forall(foldable) =>
      attempt(project) {
        val projection = UnsafeProjection.create(columns, local.output)
        val output = columns.map(_.toAttribute.asInstanceOf[AttributeReference])
        local.copy(output = output, rows = local.rows.map(row => projection(row).copy()))
      }
    case filter @ Filter(condition, local: InlineRows) if foldable(condition) =>
      attempt(filter) {
        val predicate =
          Predicate.createInterpreted(BindReferences.bindReference(condition, local.output))
        predicate.initialize(0)
        local.copy(rows = local.rows.filter(predicate.eval))
      }
    case Limit(IntegerLiteral(count), local: InlineRows) =>
      local.copy(rows = local.rows.take(count))
  }

  private def foldable(expression: Expression): Boolean =
    expression.deterministic && !expression.exists {
      case _: Attribute                                                     => false
      case _: PlanExpression[_] | _: Unevaluable | _: UserDefinedExpression => true
      case _                                                                => false
    }

  /** An error in the data is raised when the statement runs, and only if it gets there. */
  private def attempt(original: LogicalPlan)(fold: => LogicalPlan): LogicalPlan =
    try fold
    catch { case NonFatal(_) => original }
}

private[slackwater] final case class InlineRowsExec(
    label: String,
    output: Seq[Attribute],
    @transient rows: Seq[InternalRow]
) extends LeafExecNode {

  override lazy val metrics =
    Map("numOutputRows" -> SQLMetrics.createMetric(sparkContext, "number of output rows"))

  override def nodeName: String = s"SlackwaterScan $label"
  override protected def stringArgs: Iterator[Any] = Iterator(output)

  @transient private lazy val unsafeRows: IndexedSeq[InternalRow] = {
    val project = UnsafeProjection.create(output, output)
    rows.iterator.map(row => project(row).copy(): InternalRow).toIndexedSeq
  }

  override protected def doExecute(): RDD[InternalRow] = {
    val counter = longMetric("numOutputRows")
    val slices = math.max(1, math.min(unsafeRows.size / 1024, session.leafNodeDefaultParallelism))
    sparkContext.parallelize(unsafeRows, slices).map { row =>
      counter += 1
      row
    }
  }

  override def executeCollect(): Array[InternalRow] = counted(unsafeRows)
  override def executeTake(limit: Int): Array[InternalRow] = counted(unsafeRows.take(limit))
  override def executeTail(limit: Int): Array[InternalRow] = counted(unsafeRows.takeRight(limit))

  private def counted(result: Seq[InternalRow]): Array[InternalRow] = {
    longMetric("numOutputRows").add(result.size)
    val execution = sparkContext.getLocalProperty(SQLExecution.EXECUTION_ID_KEY)
    SQLMetrics.postDriverMetricUpdates(sparkContext, execution, metrics.values.toSeq)
    result.toArray
  }
}
