package org.apache.spark.sql.slackwater.plans.expressions

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream}

import scala.collection.mutable

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.slackwater.values.Canonical
import org.apache.spark.sql.types.DataType
import org.apache.spark.unsafe.types.ByteArray

/** An aggregate that is given its rows in one order: it has one value for the same rows, however
  * they are stored and divided.
  *
  * @param function
  *   of bound references to `fields`; what is constant of its arguments it has as it is
  * @param fields
  *   what is kept of a row
  * @param order
  *   the fields by which rows are ordered, ascending; beyond that their bytes decide
  * @param distinct
  *   rows between which the order does not decide are one: the least by bytes
  */
private[slackwater] final case class OrderedAggregate(
    function: AggregateFunction,
    fields: Seq[Expression],
    order: Seq[Int],
    distinct: Boolean,
    override val mutableAggBufferOffset: Int = 0,
    override val inputAggBufferOffset: Int = 0
) extends TypedImperativeAggregate[mutable.ArrayBuffer[UnsafeRow]] {
  import OrderedAggregate._

  override def children: Seq[Expression] = fields
  override def nullable: Boolean = function.nullable
  override def dataType: DataType = function.dataType
  override def defaultResult: Option[Literal] = function.defaultResult
  override def prettyName: String = function.prettyName

  @transient private lazy val project =
    InterpretedUnsafeProjection.createProjection(fields.zipWithIndex.map { case (field, i) =>
      BoundReference(i, field.dataType, nullable = true)
    })

  @transient private lazy val byFields = new InterpretedOrdering(order.map { i =>
    SortOrder(BoundReference(i, fields(i).dataType, nullable = true), Ascending)
  })

  @transient private lazy val ordering: Ordering[UnsafeRow] = (a: UnsafeRow, b: UnsafeRow) => {
    val compared = byFields.compare(a, b)
    if (compared != 0) compared else ByteArray.compareBinary(a.getBytes, b.getBytes)
  }

  @transient private lazy val value = Alone(function)

  override def createAggregationBuffer(): mutable.ArrayBuffer[UnsafeRow] = mutable.ArrayBuffer.empty

  override def update(
      buffer: mutable.ArrayBuffer[UnsafeRow],
      input: InternalRow
  ): mutable.ArrayBuffer[UnsafeRow] =
    buffer += project(new GenericInternalRow(fields.map(_.eval(input)).toArray[Any])).copy()

  override def merge(
      buffer: mutable.ArrayBuffer[UnsafeRow],
      input: mutable.ArrayBuffer[UnsafeRow]
  ): mutable.ArrayBuffer[UnsafeRow] = buffer ++= input

  override def eval(buffer: mutable.ArrayBuffer[UnsafeRow]): Any = {
    val rows = buffer.sortInPlace()(ordering)
    value.of(if (distinct) withoutRepeated(rows.iterator) else rows.iterator)
  }

  private def withoutRepeated(rows: Iterator[UnsafeRow]): Iterator[UnsafeRow] = {
    var last: UnsafeRow = null
    rows.filter { row =>
      val same =
        if (order.isEmpty) row == last else last != null && byFields.compare(last, row) == 0
      last = row
      !same
    }
  }

  override def serialize(buffer: mutable.ArrayBuffer[UnsafeRow]): Array[Byte] = {
    val bytes = new ByteArrayOutputStream
    val out = new DataOutputStream(bytes)
    out.writeInt(buffer.size)
    buffer.foreach { row =>
      out.writeInt(row.getSizeInBytes)
      out.write(row.getBytes)
    }
    bytes.toByteArray
  }

  override def deserialize(bytes: Array[Byte]): mutable.ArrayBuffer[UnsafeRow] = {
    val in = new DataInputStream(new ByteArrayInputStream(bytes))
    mutable.ArrayBuffer.fill(in.readInt()) {
      val row = new UnsafeRow(fields.size)
      val stored = in.readNBytes(in.readInt())
      row.pointTo(stored, stored.length)
      row
    }
  }

  override def withNewMutableAggBufferOffset(offset: Int): OrderedAggregate =
    copy(mutableAggBufferOffset = offset)
  override def withNewInputAggBufferOffset(offset: Int): OrderedAggregate =
    copy(inputAggBufferOffset = offset)
  override protected def withNewChildrenInternal(
      newChildren: IndexedSeq[Expression]
  ): OrderedAggregate =
    copy(fields = newChildren)
}

private[slackwater] object OrderedAggregate {

  /** `function` over rows in the order of `by`, or where nothing is said of what it is called with;
    * only of what can be ordered.
    */
  def of(function: AggregateFunction, by: Seq[Expression], distinct: Boolean): OrderedAggregate = {
    val args = function.children
      .map { case sorted: SortOrder => sorted.child; case other => other }
      .filterNot(_.foldable)
    val fields = (args ++ by).map(Canonical(_)).distinctBy(_.canonicalized)
    def place(e: Expression): Int = fields.indexWhere(_.semanticEquals(Canonical(e)))
    def bind(arg: Expression): Expression = arg match {
      case sorted: SortOrder => sorted.copy(child = bind(sorted.child), sameOrderExpressions = Nil)
      case constant if constant.foldable => constant
      case other => BoundReference(place(other), other.dataType, other.nullable)
    }
    val bound = function.withNewChildren(function.children.map(bind))
    OrderedAggregate(
      bound.asInstanceOf[AggregateFunction],
      fields,
      (if (by.isEmpty) args else by)
        .filter(e => RowOrdering.isOrderable(e.dataType))
        .map(place)
        .distinct,
      distinct
    )
  }

  /** A function alone over rows of its arguments, as Spark computes it. */
  private trait Alone {
    def of(rows: Iterator[InternalRow]): Any
  }

  private object Alone {
    def apply(function: AggregateFunction): Alone = function match {
      case declarative: DeclarativeAggregate => new Declarative(declarative)
      case imperative: ImperativeAggregate   =>
        new Imperative(imperative.withNewMutableAggBufferOffset(0).withNewInputAggBufferOffset(0))
    }
  }

  private final class Imperative(function: ImperativeAggregate) extends Alone {
    private val types = function.aggBufferAttributes.map(_.dataType)

    override def of(rows: Iterator[InternalRow]): Any = {
      val buffer = new SpecificInternalRow(types)
      function.initialize(buffer)
      rows.foreach(function.update(buffer, _))
      function.eval(buffer)
    }
  }

  private final class Declarative(called: DeclarativeAggregate) extends Alone {
    private val width = called.aggBufferAttributes.size

    // Beside a buffer a row begins where that ends.
    private val function = called
      .transform { case field: BoundReference => field.copy(ordinal = field.ordinal + width) }
      .asInstanceOf[DeclarativeAggregate]
    private val attributes = function.aggBufferAttributes
    private val begin = function.initialValues
    private val next = function.updateExpressions.map(BindReferences.bindReference(_, attributes))
    private val end = BindReferences.bindReference(function.evaluateExpression, attributes)

    override def of(rows: Iterator[InternalRow]): Any = {
      val both = new JoinedRow
      val last = rows.foldLeft[InternalRow](values(begin, InternalRow.empty)) { (buffer, row) =>
        values(next, both(buffer, row))
      }
      end.eval(last)
    }

    private def values(expressions: Seq[Expression], row: InternalRow): InternalRow =
      new GenericInternalRow(expressions.map(_.eval(row)).toArray[Any])
  }
}
