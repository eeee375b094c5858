package org.apache.spark.sql.slackwater.values

import java.util.Locale

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.catalyst.util._
import org.apache.spark.sql.types._

/** The names and types that columns have in files and streams.
  *
  * Neither Parquet nor Arrow has a struct without fields, or one with two fields of one name, and
  * readers find fields whatever their case is. There such a struct has a field that is always NULL,
  * or names that end in their positions. A column whose name Spark takes for one of ours has another
  * name. The coordinator has the same rules (`repr/relation.py`).
  */
private[slackwater] object Stored {
  private val Empty = "__empty"

  /** The columns that updates have beside those of users. */
  val Time = "__time"
  val Diff = "__diff"

  /** The name of a user's column: no two have the same, and none has one of ours. */
  def column(name: String): String = {
    val base = name.reverse.dropWhile(_ == '\'').reverse
    if (Seq(Time, Diff).exists(_.equalsIgnoreCase(base))) s"$name'" else name
  }

  /** Columns of users under the names that they have. */
  def columns(users: StructType): StructType =
    StructType(users.map(field => field.copy(name = column(field.name))))

  def schema(schema: StructType): StructType =
    StructType(schema.map(field => field.copy(dataType = dataType(field.dataType))))

  def dataType(of: DataType): DataType = of match {
    case array: ArrayType => array.copy(dataType(array.elementType))
    case map: MapType     => map.copy(dataType(map.keyType), dataType(map.valueType))
    case struct: StructType if struct.isEmpty => StructType(Seq(StructField(Empty, BooleanType)))
    case struct: StructType                   =>
      StructType(struct.fields.zip(names(struct)).map { case (field, name) =>
        field.copy(name = name, dataType = dataType(field.dataType))
      })
    case other => other
  }

  private def names(struct: StructType): Seq[String] = {
    val chosen = struct.fieldNames.toSeq
    val known = chosen.map(_.toLowerCase(Locale.ROOT))
    if (known.distinct.size == known.size && !known.contains(Empty)) chosen
    else chosen.zipWithIndex.map { case (name, i) => s"${name}_${i + 1}" }
  }

  /** A value as it is stored. */
  def of(value: Expression): Expression = reshaped(value, dataType(value.dataType))

  /** A value out of a file or a stream, whose type is `to`. */
  def restored(value: Expression, to: DataType): Expression =
    if (isLike(value.dataType, to)) reshaped(value, to)
    else {
      val stored = dataType(to)
      val exact =
        if (isLike(value.dataType, stored)) value else Cast(value, stored, Some("UTC"))
      reshaped(exact, to)
    }

  private def isLike(one: DataType, other: DataType): Boolean =
    DataType.equalsStructurally(one, other, ignoreNullability = true)

  private def reshaped(value: Expression, to: DataType): Expression =
    if (value.dataType == to) value
    else if (isLike(value.dataType, to)) Relabelled(value, to)
    else Reshaped(value, to)
}

/** A value under a type that differs in nothing but names and what may be NULL. */
private[slackwater] final case class Relabelled(child: Expression, override val dataType: DataType)
    extends UnaryExpression
    with TaggingExpression {
  override protected def withNewChildInternal(newChild: Expression): Relabelled = copy(newChild)
}

/** A value whose structs without fields get the field that they have in files, or lose it. */
private[slackwater] final case class Reshaped(child: Expression, override val dataType: DataType)
    extends UnaryExpression
    with CodegenFallback {
  @transient private lazy val shape = Reshaped.shape(child.dataType, dataType)

  override def nullIntolerant: Boolean = true
  override protected def nullSafeEval(value: Any): Any = shape(value)
  override protected def withNewChildInternal(newChild: Expression): Reshaped = copy(newChild)
}

private[values] object Reshaped {
  private def shape(from: DataType, to: DataType): Any => Any = (from, to) match {
    case (ArrayType(one, _), ArrayType(other, _)) =>
      val ofElements = shape(one, other)
      value => new GenericArrayData(Forms.elements(value.asInstanceOf[ArrayData], one, ofElements))
    case (MapType(k, v, _), MapType(otherK, otherV, _)) =>
      val (ofKeys, ofValues) = (shape(k, otherK), shape(v, otherV))
      value => {
        val map = value.asInstanceOf[MapData]
        new ArrayBasedMapData(
          new GenericArrayData(Forms.elements(map.keyArray(), k, ofKeys)),
          new GenericArrayData(Forms.elements(map.valueArray(), v, ofValues))
        )
      }
    case (one: StructType, other: StructType) if one.length == other.length =>
      val ofFields = one.zip(other).map { case (f, t) => shape(f.dataType, t.dataType) }
      value => {
        val row = value.asInstanceOf[InternalRow]
        new GenericInternalRow(Array.tabulate[Any](one.length) { i =>
          if (row.isNullAt(i)) null else ofFields(i)(row.get(i, one(i).dataType))
        })
      }
    case (_: StructType, other: StructType) => _ => new GenericInternalRow(other.length)
    case _                                  => identity
  }
}
