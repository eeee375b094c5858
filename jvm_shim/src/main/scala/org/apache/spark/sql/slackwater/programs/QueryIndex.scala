package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.catalyst.expressions.{BoundReference, Expression, UnsafeRow}
import org.apache.spark.sql.slackwater.arrangements.Arrangement
import org.apache.spark.sql.slackwater.scan.{IndexKeys, IndexReader, KeyedUpdates, LocalIndex}
import org.apache.spark.sql.slackwater.values.Canonical
import org.apache.spark.sql.types.{DataType, StructType}

/** The arrangement of a program that queries look up in.
  *
  * @param isComputed
  *   its rows do not have the form yet in which equal values are the same
  */
private[slackwater] final class QueryIndex(
    val name: String,
    val columns: StructType,
    val keys: Seq[Expression],
    val keyTypes: Seq[DataType],
    arranged: ArrangementReader,
    isComputed: Boolean
) extends LocalIndex {
  private val forms: Option[Seq[Expression]] = {
    val values = columns.fields.toSeq.zipWithIndex.map { case (field, i) =>
      BoundReference(i, field.dataType, nullable = true)
    }
    if (isComputed) Canonical.ofAll(values) else None
  }

  override def reading[A](asOf: Long)(body: IndexReader => A): Option[A] =
    arranged.reading(asOf) { found =>
      val form = forms.fold[UnsafeRow => UnsafeRow](identity) { each =>
        val projection = IndexKeys.projection(each)
        row => projection(row)
      }
      body(QueryIndex.reader(found, form))
    }
}

private[slackwater] object QueryIndex {

  private def reader(found: Arrangement, form: UnsafeRow => UnsafeRow): IndexReader =
    new IndexReader {
      override def upper: Long = found.upper
      override def updates: Long = found.rows

      override def all(below: Long)(sink: KeyedUpdates): Unit = {
        var last: UnsafeRow = null
        found.scan(
          below,
          (key, row, _, diff) => {
            if (key != last) {
              sink.endKey()
              last = key.copy()
            }
            sink.add(form(row), diff)
          }
        )
        sink.endKey()
      }

      override def lookup(key: UnsafeRow, below: Long)(visit: (UnsafeRow, Long) => Unit): Unit =
        found.lookup(key, below, (row, _, diff) => visit(form(row), diff))
    }
}
