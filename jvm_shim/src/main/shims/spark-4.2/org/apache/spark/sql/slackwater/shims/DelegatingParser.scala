package org.apache.spark.sql.slackwater.shims

import org.apache.spark.sql.catalyst.{FunctionIdentifier, TableIdentifier}
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.parser.ParserInterface
import org.apache.spark.sql.types.{DataType, StructType}

/** What this minor's `ParserInterface` parses beside statements and queries: `delegate` does it. */
private[slackwater] trait DelegatingParser extends ParserInterface {

  def delegate: ParserInterface

  override def parseExpression(text: String): Expression = delegate.parseExpression(text)

  override def parseTableIdentifier(text: String): TableIdentifier =
    delegate.parseTableIdentifier(text)

  override def parseFunctionIdentifier(text: String): FunctionIdentifier =
    delegate.parseFunctionIdentifier(text)

  override def parseMultipartIdentifier(text: String): Seq[String] =
    delegate.parseMultipartIdentifier(text)

  override def parseTableSchema(text: String): StructType = delegate.parseTableSchema(text)

  override def parseDataType(text: String): DataType = delegate.parseDataType(text)

  override def parseRoutineParam(text: String): StructType = delegate.parseRoutineParam(text)
}
