package org.apache.spark.sql.slackwater.plans

import java.nio.charset.StandardCharsets.UTF_8
import java.security.MessageDigest
import java.util.HexFormat

import scala.collection.mutable

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.trees.TreeNode
import org.apache.spark.sql.catalyst.util.{ArrayData, MapData}
import org.apache.spark.sql.slackwater.plans.expressions.{Dated, OrderedAggregate}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Tells expressions apart, in any process: it depends on no id that Spark counts. */
private[plans] object Digest {

  /** @param columns the numbers of the columns that the expression reads */
  def of(expression: Expression, columns: ExprId => Option[Int]): String =
    hash(new Text(columns).of(expression))

  def ofRows(rows: Iterable[InternalRow], types: Seq[DataType]): String = {
    val text = new Text(_ => None)
    hash(rows.map(text.row(_, types)).mkString("\n"))
  }

  private def hash(text: String): String =
    HexFormat.of.formatHex(MessageDigest.getInstance("SHA-256").digest(text.getBytes(UTF_8)), 0, 16)

  private final class Text(columns: ExprId => Option[Int]) {
    private val inner = mutable.HashMap.empty[ExprId, Int]

    def of(value: Any): String = value match {
      case null                       => "null"
      case Literal(value, kind)       => s"literal(${this.value(value, kind)},${of(kind)})"
      case column: AttributeReference =>
        columns(column.exprId).fold(s"inner ${number(column.exprId)}")(n => s"column $n")
      case variable: NamedLambdaVariable =>
        s"variable(${number(variable.exprId)},${of(variable.dataType)})"
      case id: ExprId => s"id ${number(id)}"
      // Texts of several collations, which Spark compares in none of them, have no JSON.
      case kind: DataType if kind.existsRecursively(_ == IndeterminateStringType) =>
        quoted(kind.toString)
      case kind: DataType     => quoted(StructType(Seq(StructField("type", kind))).json)
      case metadata: Metadata => metadata.json
      case node: TreeNode[_]  => s"${name(node)}${all(node.productIterator)}"
      case text: String       => quoted(text)
      case kind: Class[_]     => kind.getName
      case many: Map[_, _]    => many.map { case (k, v) => of(k) + of(v) }.toSeq.sorted.toString
      case many: Iterable[_]  => all(many.iterator)
      case many: Array[_]     => all(many.iterator)
      case value: Option[_]   => all(value.iterator)
      case _: Number | _: Boolean | _: Char | _: Enumeration#Value => value.toString
      case _: Enum[_] | _: UTF8String | _: Decimal                 => quoted(value.toString)
      case product: Product => s"${product.getClass.getName}${all(product.productIterator)}"
      case other            => other.getClass.getName
    }

    def row(row: InternalRow, types: Seq[DataType]): String =
      types.zipWithIndex.map { case (t, i) => value(row.get(i, t), t) }.mkString("(", ",", ")")

    private def value(value: Any, kind: DataType): String = (value, kind) match {
      case (null, _)                                 => "null"
      case (array: ArrayData, ArrayType(element, _)) =>
        array.toObjectArray(element).map(this.value(_, element)).mkString("[", ",", "]")
      case (map: MapData, MapType(key, item, _)) =>
        this.value(map.keyArray(), ArrayType(key)) + this.value(map.valueArray(), ArrayType(item))
      case (struct: InternalRow, StructType(fields)) => row(struct, fields.toSeq.map(_.dataType))
      case (bytes: Array[Byte], _)                   => HexFormat.of.formatHex(bytes)
      case (_, _: ObjectType)                        => of(value)
      case (other, _)                                => quoted(other.toString)
    }

    /** Definitions of views store digests: a class keeps the name that it had in the first of them. */
    private def name(node: TreeNode[_]): String = node match {
      case _: OrderedAggregate => "org.apache.spark.sql.slackwater.plans.InOrder"
      case _: Dated            => "org.apache.spark.sql.slackwater.plans.Dated"
      case other               => other.getClass.getName
    }

    private def all(values: Iterator[Any]): String = values.map(of).mkString("(", ",", ")")
    private def number(id: ExprId): Int = inner.getOrElseUpdate(id, inner.size)
    private def quoted(text: String): String = {
      val escaped = text.replace("\\", "\\\\").replace("'", "\\'")
      s"'$escaped'"
    }
  }
}
