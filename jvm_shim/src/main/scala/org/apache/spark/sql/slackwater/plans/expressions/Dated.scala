package org.apache.spark.sql.slackwater.plans.expressions

import org.apache.spark.sql.catalyst.expressions.{Expression, UnaryExpression}
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.types.DataType
import org.apache.spark.unsafe.types.UTF8String

/** The text, or one that cannot be cast where it says a time alone. */
private[slackwater] final case class Dated(child: Expression)
    extends UnaryExpression
    with CodegenFallback {
  override def dataType: DataType = child.dataType
  override def nullIntolerant: Boolean = true

  override protected def nullSafeEval(text: Any): Any = {
    val known = text.asInstanceOf[UTF8String]
    if (Dated.isTimeAlone(known)) UTF8String.concat(Dated.noDate, known) else known
  }

  override protected def withNewChildInternal(newChild: Expression): Dated = copy(newChild)
}

private[slackwater] object Dated {
  private val noDate = UTF8String.fromString("no date: ")

  /** As `SparkDateTimeUtils.parseTimestampString` sees it: a `T` or digits and a colon come first. */
  def isTimeAlone(text: UTF8String): Boolean = {
    val size = text.numBytes
    var i = 0
    while (i < size && isBlank(text.getByte(i))) i += 1
    if (i < size && text.getByte(i) == 'T') true
    else {
      val digits = i
      while (i < size && text.getByte(i) >= '0' && text.getByte(i) <= '9') i += 1
      i > digits && i < size && text.getByte(i) == ':'
    }
  }

  /** What `UTF8String.trimAll` takes off. */
  private def isBlank(byte: Byte): Boolean = byte >= 0 && byte <= ' ' || byte == 0x7f
}
