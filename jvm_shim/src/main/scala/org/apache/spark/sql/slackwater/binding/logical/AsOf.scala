package org.apache.spark.sql.slackwater.binding.logical

import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.expressions.{
  Alias,
  Attribute,
  Cast,
  Expression,
  Literal,
  SubqueryExpression,
  Unevaluable
}
import org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, OneRowRelation, Project, UnaryNode}
import org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.slackwater.protocol.DataErrors
import org.apache.spark.sql.types._

/** `child AS OF [AT LEAST] time`: the time at which every collection below is read. */
case class AsOf(child: LogicalPlan, time: Expression, atLeast: Boolean) extends UnaryNode {
  override def output: Seq[Attribute] = child.output
  override lazy val resolved: Boolean = childrenResolved && AsOf.milliseconds(time).isDefined
  override protected def withNewChildInternal(newChild: LogicalPlan): LogicalPlan =
    copy(child = newChild)
}

object AsOf {

  /** The time that the analyzer has made of the expression. */
  def milliseconds(time: Expression): Option[Long] = time match {
    case Literal(value: Long, LongType) if value >= 0 => Some(value)
    case _                                            => None
  }

  /** The milliseconds since the epoch that a constant stands for.
    *
    * Raises SLACKWATER_INVALID_AS_OF for everything that is not one known moment.
    */
  def evaluate(time: Expression): Long = {
    val value = constant(time)
    if (value == null) fail(time, "it is NULL")
    val result = time.dataType match {
      case _: IntegralType                             => value.asInstanceOf[Number].longValue
      case _: DecimalType | FloatType | DoubleType     => whole(time, BigDecimal(value.toString))
      case _: StringType                               => fromText(time, value.toString.trim)
      case DateType | TimestampType | TimestampNTZType => fromTimestamp(time)
      case other => fail(time, s"a value of type ${other.sql} is not a time")
    }
    if (result < 0) fail(time, "it is before the epoch")
    result
  }

  /** Raises SLACKWATER_INVALID_AS_OF where the expression, resolved or not, has a subquery. */
  def refuseSubquery(time: Expression): Unit =
    if (SubqueryExpression.hasSubquery(time)) fail(time, "a subquery is not a constant")

  private def constant(time: Expression): Any = {
    refuseSubquery(time)
    if (time.references.nonEmpty) fail(time, "a column is not a constant")
    val plain = replaced(time)
    plain.foreach {
      case e if e.children.isEmpty && e.containsPattern(CURRENT_LIKE) => changing(time, e)
      case e: Unevaluable                                             => changing(time, e)
      case e if !e.deterministic => fail(time, s"${e.prettyName}() is not a constant")
      case _                     =>
    }
    if (!plain.foldable) fail(time, "it is not a constant")
    try plain.eval()
    catch { case NonFatal(e) => fail(time, s"it cannot be computed: ${e.getMessage}") }
  }

  private def fromText(time: Expression, text: String): Long =
    if (text.matches("[+-]?[0-9]+(\\.[0-9]*)?")) whole(time, BigDecimal(text))
    else fromTimestamp(time)

  private def whole(time: Expression, value: BigDecimal): Long =
    if (!value.isWhole) fail(time, "it has a fraction of a millisecond")
    else if (!value.isValidLong) fail(time, "it is too large")
    else value.toLong

  private def fromTimestamp(time: Expression): Long = {
    val zone = Some(SQLConf.get.sessionLocalTimeZone)
    Cast(replaced(time), TimestampType, zone, ansiEnabled = false).eval() match {
      case micros: Long => Math.floorDiv(micros, 1000L)
      case _            => fail(time, "it does not cast to a timestamp")
    }
  }

  /** The expression without what only an optimizer knows how to compute. */
  private def replaced(time: Expression): Expression =
    ReplaceExpressions(Project(Seq(Alias(time, "t")()), OneRowRelation())) match {
      case Project(Seq(Alias(expression, _)), _) => expression
      case other => throw new IllegalStateException(s"a projection became ${other.nodeName}")
    }

  private def changing(time: Expression, e: Expression): Nothing =
    fail(time, s"${e.prettyName}() has another value for each statement")

  private def fail(time: Expression, reason: String): Nothing =
    throw DataErrors.invalidAsOf(time.sql, reason)
}
