package org.apache.spark.sql.slackwater.programs

import java.math.{BigDecimal => JavaDecimal, BigInteger}

import org.apache.spark.sql.catalyst.expressions.aggregate.{
  AggregateFunction,
  Average,
  Count,
  DeclarativeAggregate,
  Sum
}
import org.apache.spark.sql.catalyst.expressions.{
  And,
  AttributeReference,
  BoundReference,
  CreateNamedStruct,
  EvalMode,
  Expression,
  GenericInternalRow,
  If,
  IsNotNull,
  Literal
}
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.slackwater.plans.expressions.Moments
import org.apache.spark.sql.types._

/** An aggregate that is accumulated. Serializable: executors accumulate as well.
  *
  * @param input
  *   what it takes in, over the columns of the aggregate's input; NULL: nothing
  */
private[slackwater] final case class Accumulated(function: AggregateFunction, input: Expression) {
  import Accumulated._

  def start(): Accumulator = maker()

  /** A group takes what it needs from here; what type that is was asked once. */
  @transient private lazy val maker: () => Accumulator = function match {
    case _: Count => () => new CountAccumulator
    case other    => Moments.of(other).fold(ofNumbers(other))(ofMoments)
  }

  private def ofMoments(moments: Moments): () => Accumulator = {
    val names = declared.aggBufferAttributes.map(_.name)
    def finish(moment: String => Double): Any =
      finished.eval(new GenericInternalRow(names.map(moment).toArray[Any]))
    () => new MomentAccumulator(moments, finish)
  }

  private def ofNumbers(numbers: AggregateFunction): () => Accumulator =
    numbers.children.head.dataType match {
      case d: DecimalType =>
        def finish(total: BigInteger, n: Long): Any = decimalResult(d, total, n)
        if (d.precision <= Decimal.MAX_LONG_DIGITS)
          () =>
            new WholeAccumulator(
              (row, at) => Left(row.getDecimal(at, d.precision, d.scale).toUnscaledLong),
              finish
            )
        else
          () =>
            new WholeAccumulator(
              (row, at) =>
                Right(row.getDecimal(at, d.precision, d.scale).toJavaBigDecimal.unscaledValue),
              finish
            )
      case FloatType =>
        () => new DoubleAccumulator((r, at) => r.getFloat(at).toDouble, doubleResult)
      case DoubleType => () => new DoubleAccumulator((r, at) => r.getDouble(at), doubleResult)
      case ByteType   =>
        () => new WholeAccumulator((r, at) => Left(r.getByte(at).toLong), longResult)
      case ShortType =>
        () => new WholeAccumulator((r, at) => Left(r.getShort(at).toLong), longResult)
      case IntegerType =>
        () => new WholeAccumulator((r, at) => Left(r.getInt(at).toLong), longResult)
      case LongType => () => new WholeAccumulator((r, at) => Left(r.getLong(at)), longResult)
      case other    => throw new IllegalStateException(s"no accumulator for ${other.sql}")
    }

  private def doubleResult(sum: Double, n: Long): Any =
    if (n == 0) null else if (function.isInstanceOf[Average]) sum / n.toDouble else sum

  private def longResult(total: BigInteger, n: Long): Any =
    if (n == 0) null
    else
      function match {
        case _: Average => total.doubleValue / n.toDouble
        case sum: Sum   =>
          val mode = sum.evalContext.evalMode
          if (mode == EvalMode.LEGACY || total.bitLength < 64) total.longValue
          else if (mode == EvalMode.TRY) null
          else throw QueryExecutionErrors.arithmeticOverflowError("long overflow", "try_sum")
      }

  /** By Spark's own expression, which knows precision, overflow and mode. */
  private def decimalResult(d: DecimalType, total: BigInteger, n: Long): Any = {
    val attributes = declared.aggBufferAttributes
    val sum = attributes.head.dataType.asInstanceOf[DecimalType]
    val exact = Decimal(new JavaDecimal(total, d.scale))
    val whole = if (exact.changePrecision(sum.precision, sum.scale)) exact else null
    val second: Any = attributes(1).dataType match {
      case LongType    => n
      case BooleanType => n == 0
    }
    // A sum that does not fit is NULL in a group that has values: Spark's mark of an overflow.
    val buffer = new GenericInternalRow(Array[Any](whole, second))
    finished.eval(buffer)
  }

  private def declared: DeclarativeAggregate = function.asInstanceOf[DeclarativeAggregate]

  @transient private lazy val finished: Expression =
    bound(declared.evaluateExpression, declared.aggBufferAttributes)
}

private[slackwater] object Accumulated {

  /** `function` over rows with the columns that `bind` finds. */
  def of(
      function: AggregateFunction,
      filter: Option[Expression],
      bind: Expression => Expression
  ): Accumulated = {
    val value = taken(function)
    Accumulated(function, bind(filter.fold(value)(onlyIf(_, value))))
  }

  /** What the function takes in of a row: NULL where it leaves the row out. */
  def taken(function: AggregateFunction): Expression = function match {
    case Count(children) => present(children, Literal(1))
    case other           =>
      other.children match {
        case Seq(value) => value
        case values     =>
          val named = values.zipWithIndex.flatMap { case (v, i) => Seq(Literal(s"$i"), v) }
          present(values, CreateNamedStruct(named))
      }
  }

  private def present(values: Seq[Expression], made: Expression): Expression =
    values
      .filter(_.nullable)
      .map(IsNotNull(_): Expression)
      .reduceOption(And)
      .fold(made)(onlyIf(_, made))

  private def onlyIf(condition: Expression, value: Expression): Expression =
    If(condition, value, Literal(null, value.dataType))

  private def bound(e: Expression, attributes: Seq[AttributeReference]): Expression =
    e.transform { case a: AttributeReference =>
      BoundReference(attributes.indexWhere(_.exprId == a.exprId), a.dataType, nullable = true)
    }
}
