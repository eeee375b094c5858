package org.apache.spark.sql.slackwater.values

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke
import org.apache.spark.sql.catalyst.util.CharVarcharCodegenUtils
import org.apache.spark.sql.types._

/** Which expressions have a value for every row.
  *
  * Spark's own `throwable` says no of many that raise, such as additions that overflow. Here it is the
  * other way round: what is not known to have a value may raise.
  */
private[slackwater] object Totality {
  def mayRaise(expression: Expression): Boolean =
    !isTotal(expression) || expression.children.exists(mayRaise)

  private def isTotal(expression: Expression): Boolean = expression match {
    case _: LeafExpression | _: Alias => true
    case arithmetic: BinaryArithmetic =>
      isBitwise(arithmetic) || wraps(arithmetic)
    case minus: UnaryMinus              => !minus.failOnError || isFloating(minus.dataType)
    case cast: Cast                     => isTotal(cast)
    case pattern: StringRegexExpression => pattern.right.foldable
    case _: Sum | _: Average            => isFloating(expression.dataType)
    case call: StaticInvoke             => isPadding(call)
    case other                          => isLogic(other) || isFunction(other) || isWindow(other)
  }

  /** What makes a CHAR of a text that is read: it has an error for none. */
  private def isPadding(call: StaticInvoke): Boolean =
    call.staticObject == classOf[CharVarcharCodegenUtils] &&
      call.functionName == "readSidePadding"

  private def isBitwise(arithmetic: BinaryArithmetic): Boolean = arithmetic match {
    case _: BitwiseAnd | _: BitwiseOr | _: BitwiseXor => true
    case _                                            => false
  }

  private def wraps(arithmetic: BinaryArithmetic): Boolean = arithmetic match {
    case _: Add | _: Subtract | _: Multiply if isFloating(arithmetic.dataType) => true
    case _                                                                     =>
      arithmetic.dataType
        .isInstanceOf[NumericType] && arithmetic.evalContext.evalMode != EvalMode.ANSI
  }

  private def isTotal(cast: Cast): Boolean = cast.dataType match {
    case _: NumericType | _: StringType | _: BooleanType =>
      cast.evalMode != EvalMode.ANSI || cast.dataType == cast.child.dataType ||
      Cast.canUpCast(cast.child.dataType, cast.dataType)
    case BinaryType => cast.child.dataType.isInstanceOf[StringType]
    case same       => same == cast.child.dataType
  }

  private def isFloating(dataType: DataType): Boolean = dataType match {
    case _: FloatType | _: DoubleType => true
    case _                            => false
  }

  private def isLogic(expression: Expression): Boolean = expression match {
    case _: And | _: Or | _: Not | _: BinaryComparison | _: In | _: InSet => true
    case _: IsNull | _: IsNotNull | _: IsNaN | _: Coalesce | _: NaNvl     => true
    case _: If | _: CaseWhen | _: Greatest | _: Least                     => true
    case _: KnownNotNull | _: KnownNullable                               => true
    case _                                                                => false
  }

  private def isFunction(expression: Expression): Boolean = expression match {
    case _: GetStructField | _: CreateNamedStruct | _: CreateArray | _: Size     => true
    case _: LambdaFunction | _: ArrayTransform | _: ArrayFilter | _: ArrayExists => true
    case _: ArrayContains | _: BitwiseNot | _: Collate | _: CollationKey | _: ResolvedCollation =>
      true
    case _: StringPredicate | _: Upper | _: Lower | _: Length | _: Substring           => true
    case _: MapEntries | _: SortArray | _: HashExpression[_]                           => true
    case _: RowBytes | _: InOneForm                                                    => true
    case _: Concat | _: String2TrimExpression | _: GetDateField | _: GetTimeField      => true
    case _: Count | _: Min | _: Max | _: MaxMinBy | _: First | _: Last | _: Collect[_] => true
    case _                                                                             => false
  }

  private def isWindow(expression: Expression): Boolean = expression match {
    case _: WindowExpression | _: WindowSpecDefinition | _: WindowFrame    => true
    case _: SpecialFrameBoundary | _: SortOrder | _: AggregateExpression   => true
    case _: RowNumberLike | _: RankLike | _: FrameLessOffsetWindowFunction => true
    case _                                                                 => false
  }
}
