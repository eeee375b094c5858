package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.catalyst.expressions.{Expression, UnsafeRow}
import org.apache.spark.sql.slackwater.arrangements.{Arrangement, KeyedSink, Sink}
import org.apache.spark.sql.slackwater.scan.{IndexReader, LocalIndex, WantedRows}
import org.apache.spark.sql.types.{DataType, StructType}

/** The arrangement of a program that queries look up in. */
private[slackwater] final class QueryIndex(
    val name: String,
    val columns: StructType,
    val keys: Seq[Expression],
    val keyTypes: Seq[DataType],
    arranged: ArrangementReader
) extends LocalIndex {
  override def reading[A](asOf: Long)(body: IndexReader => A): Option[A] =
    arranged.reading(asOf)(found => body(QueryIndex.reader(found)))
}

private[slackwater] object QueryIndex {

  private def reader(found: Arrangement): IndexReader = new IndexReader {
    override def upper: Long = found.upper
    override def updates: Long = found.rows

    override def all(below: Long)(sink: WantedRows): Unit = {
      var last: UnsafeRow = null
      found.scan(
        below,
        new KeyedSink {
          override def take(key: UnsafeRow, row: UnsafeRow, time: Long, diff: Long): Unit = {
            if (key != last) {
              sink.endKey()
              last = key.copy()
            }
            sink.add(row, diff)
          }
        }
      )
      sink.endKey()
    }

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
