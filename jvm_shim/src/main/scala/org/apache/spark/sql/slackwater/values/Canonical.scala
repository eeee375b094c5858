package org.apache.spark.sql.slackwater.values

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers
import org.apache.spark.sql.catalyst.util._
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.ByteArray

/** Values of collections in the form that all values have which are the same to a collection: 0.0
  * for -0.0, one NaN, the entries of a map by its keys.
  *
  * What a program has of a row has the bytes of what is taken away later.
  */
private[slackwater] object Canonical {
  def apply(value: Expression): Expression =
    if (!value.dataType.existsRecursively(_.isInstanceOf[MapType]))
      NormalizeFloatingNumbers.normalize(value)
    else
      value match {
        case made: InOneForm => made
        case other           => InOneForm(other)
      }

  /** All values in that form; None: each has it as it is. */
  def ofAll(values: Seq[Expression]): Option[Seq[Expression]] = {
    val forms = values.map(apply)
    Option.unless(values.corresponds(forms)(_ eq _))(forms)
  }
}

/** A value with maps in its canonical form.
  *
  * Spark's own expressions sort entries only where their values can be ordered, and those of maps
  * of maps cannot.
  */
private[slackwater] final case class InOneForm(child: Expression)
    extends UnaryExpression
    with CodegenFallback {
  @transient private lazy val form = Forms.of(dataType).getOrElse(identity[Any] _)

  override def dataType: DataType = child.dataType
  override def nullIntolerant: Boolean = true
  override def prettyName: String = "in_one_form"
  override protected def nullSafeEval(value: Any): Any = form(value)
  override protected def withNewChildInternal(newChild: Expression): InOneForm = copy(newChild)
}

/** How a value that is not NULL gets its canonical form. */
private[values] object Forms {
  type Form = Any => Any

  /** None: the values of the type have one form as they are. */
  def of(dataType: DataType): Option[Form] = dataType match {
    case FloatType          => Some(NormalizeFloatingNumbers.FLOAT_NORMALIZER)
    case DoubleType         => Some(NormalizeFloatingNumbers.DOUBLE_NORMALIZER)
    case array: ArrayType   => of(array.elementType).map(ofArray(array, _))
    case map: MapType       => Some(ofMap(map))
    case fields: StructType => ofStruct(fields)
    case _                  => None
  }

  private def ofArray(array: ArrayType, form: Form): Form = value =>
    new GenericArrayData(elements(value.asInstanceOf[ArrayData], array.elementType, form))

  private def ofStruct(struct: StructType): Option[Form] = {
    val forms = struct.fields.map(field => of(field.dataType))
    Option.when(forms.exists(_.isDefined)) { value =>
      val row = value.asInstanceOf[InternalRow]
      new GenericInternalRow(Array.tabulate[Any](forms.length) { i =>
        if (row.isNullAt(i)) null
        else {
          val field = row.get(i, struct(i).dataType)
          forms(i).fold(field)(_(field))
        }
      })
    }
  }

  private def ofMap(map: MapType): Form = {
    val ofKeys = of(map.keyType).getOrElse(identity[Any] _)
    val ofValues = of(map.valueType).getOrElse(identity[Any] _)
    val byKey = ordering(map.keyType)
    value => {
      val entries = value.asInstanceOf[MapData]
      val keys = elements(entries.keyArray(), map.keyType, ofKeys)
      val values = elements(entries.valueArray(), map.valueType, ofValues)
      val order = keys.indices.sortWith((i, j) => byKey.lt(keys(i), keys(j))).toArray
      new ArrayBasedMapData(
        new GenericArrayData(order.map(keys)),
        new GenericArrayData(order.map(values))
      )
    }
  }

  /** What `form` makes of each element that is not NULL. */
  def elements(list: ArrayData, of: DataType, form: Form): Array[Any] =
    Array.tabulate[Any](list.numElements()) { i =>
      if (list.isNullAt(i)) null else form(list.get(i, of))
    }

  /** Of keys in their form. No two of one map are equal; of other types the bytes decide. */
  private def ordering(keys: DataType): Ordering[Any] =
    if (RowOrdering.isOrderable(keys)) TypeUtils.getInterpretedOrdering(keys)
    else (left: Any, right: Any) => ByteArray.compareBinary(bytes(left, keys), bytes(right, keys))

  private def bytes(value: Any, dataType: DataType): Array[Byte] = InterpretedUnsafeProjection
    .createProjection(Seq(BoundReference(0, dataType, nullable = true)))(
      new GenericInternalRow(Array(value))
    )
    .copy()
    .getBytes
}
