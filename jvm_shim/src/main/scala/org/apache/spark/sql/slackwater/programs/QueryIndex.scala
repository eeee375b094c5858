package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.catalyst.expressions.{Expression, UnsafeRow}
import org.apache.spark.sql.catalyst.optimizer.NormalizeFloatingNumbers
import org.apache.spark.sql.slackwater.arrangements.{Arrangement, Sink}
import org.apache.spark.sql.slackwater.scan.{CollectionIndex, IndexReader}
import org.apache.spark.sql.slackwater.values.Keys
import org.apache.spark.sql.types.StructType

/** The arrangement of a program that queries look up in. */
private[slackwater] final class QueryIndex(
    val name: String,
    val columns: StructType,
    val keys: Seq[Expression],
    arranged: ArrangementReader
) extends CollectionIndex {

  override def projection(values: Seq[Expression]): Seq[Expression] = values.map(QueryIndex.form)

  override def reading[A](asOf: Long)(body: IndexReader => A): Option[A] =
    arranged.reading(asOf)(found => body(QueryIndex.reader(found)))
}

private[slackwater] object QueryIndex {

  /** Values that Spark takes for equal have equal bytes in this form. */
  def form(value: Expression): Expression = Keys.of(NormalizeFloatingNumbers.normalize(value))

  private def reader(found: Arrangement): IndexReader = new IndexReader {
    override def upper: Long = found.upper

    override def lookup(key: UnsafeRow, below: Long)(visit: (UnsafeRow, Long) => Unit): Unit =
      found.lookup(
        key,
        below,
        new Sink {
          override def take(row: UnsafeRow, time: Long, diff: Long): Unit = visit(row, diff)
        }
      )
  }
}
