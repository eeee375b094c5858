package org.apache.spark.sql.slackwater.thrift

import java.sql.Types
import java.util.Locale

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.types._

/** What JDBC says of the type of a column: the numbers that Spark's own operation gives, but for the
  * size of a decimal number, which is its precision.
  */
final case class ColumnType(
    code: Int,
    name: String,
    size: Option[Int],
    digits: Option[Int],
    radix: Option[Int]
)

object ColumnType {

  def of(kind: DataType): ColumnType =
    ColumnType(code(kind), kind.sql, size(kind), digits(kind), radix(kind))

  /** A type that this Spark cannot read: the column has a name all the same. */
  def unknown(written: JsonNode): ColumnType = {
    val name = if (written.isTextual) written.asText else written.path("type").asText
    ColumnType(Types.OTHER, name.toUpperCase(Locale.ROOT), None, None, None)
  }

  private def code(kind: DataType): Int = kind match {
    case NullType                         => Types.NULL
    case BooleanType                      => Types.BOOLEAN
    case ByteType                         => Types.TINYINT
    case ShortType                        => Types.SMALLINT
    case IntegerType                      => Types.INTEGER
    case LongType                         => Types.BIGINT
    case FloatType                        => Types.FLOAT
    case DoubleType                       => Types.DOUBLE
    case _: DecimalType                   => Types.DECIMAL
    case _: CharType                      => Types.CHAR
    case _: VarcharType | _: StringType   => Types.VARCHAR
    case BinaryType                       => Types.BINARY
    case DateType                         => Types.DATE
    case TimestampType | TimestampNTZType => Types.TIMESTAMP
    case _: ArrayType                     => Types.ARRAY
    case _: MapType                       => Types.JAVA_OBJECT
    case _: StructType                    => Types.STRUCT
    case _                                => Types.OTHER
  }

  private def size(kind: DataType): Option[Int] = kind match {
    case number: DecimalType => Some(number.precision)
    case NullType | BooleanType | DateType | TimestampType | TimestampNTZType => fixed(kind)
    case _: NumericType | CalendarIntervalType | _: AnsiIntervalType          => fixed(kind)
    case char: CharType                                                       => Some(char.length)
    case varchar: VarcharType => Some(varchar.length)
    case struct: StructType   =>
      val sizes = struct.fields.map(field => size(field.dataType))
      Option.when(sizes.forall(_.isDefined))(sizes.flatten.sum)
    case _ => None
  }

  private def fixed(kind: DataType): Option[Int] = Some(kind.defaultSize)

  private def digits(kind: DataType): Option[Int] = kind match {
    case BooleanType | ByteType | ShortType | IntegerType | LongType => Some(0)
    case FloatType                                                   => Some(7)
    case DoubleType                                                  => Some(15)
    case number: DecimalType                                         => Some(number.scale)
    case TimestampType | TimestampNTZType                            => Some(6)
    case _                                                           => None
  }

  private def radix(kind: DataType): Option[Int] = kind match {
    case _: NumericType => Some(10)
    case _              => None
  }
}
