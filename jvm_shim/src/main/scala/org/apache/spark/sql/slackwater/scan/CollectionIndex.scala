package org.apache.spark.sql.slackwater.scan

import java.util.concurrent.ConcurrentHashMap

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Expression, UnsafeRow}
import org.apache.spark.sql.types.{DataType, StructType}

/** The rows of a collection or a view by keys. Thread-safe. */
private[slackwater] trait CollectionIndex {

  /** As users know it. */
  def name: String

  /** Of the rows that it has. */
  def columns: StructType

  /** The keys, over attributes with the names of `columns`; Nil: nobody knows them but by values. */
  def keys: Seq[Expression]

  def keyTypes: Seq[DataType]

  /** What it has of the keys with the values `wanted` up to `asOf` (ms), as far as it is; None: it does
    * not have the contents at that time, or not any more, or they have more than `most` rows.
    *
    * @param offered
    *   it is complete before that time (ms) at least
    */
  def found(wanted: Seq[InternalRow], asOf: Long, offered: Long, most: Int): Option[FoundRows]

  /** The same of all keys, at least of the rows that are `wanted`, an expression over `columns` by
    * their places.
    */
  def all(asOf: Long, offered: Long, most: Int, wanted: Finishing): Option[Found]
}

/** What an index has, and before which time (ms) it is complete; nothing is here of later times. */
private[slackwater] sealed trait Found {
  def upper: Long
}

/** @param rows
  *   each with how often it is there, then or as of the time that was asked for
  */
private[slackwater] final case class FoundRows(upper: Long, rows: Seq[(UnsafeRow, Long)])
    extends Found {

  /** How many rows these are, each as often as it is there. */
  def count: Long = rows.iterator.map { case (_, times) => math.max(0L, times) }.sum
}

/** Too many rows for an answer.
  *
  * @param files
  *   a relation of the protocol whose files have each row as often as it is there, under the names
  *   that columns have in files
  */
private[slackwater] final case class FoundFile(upper: Long, files: JsonNode) extends Found

/** An index in the memory of this driver. */
private[slackwater] trait LocalIndex extends CollectionIndex {

  /** Runs `body` while the contents at `asOf` (ms) are kept; None: they are not kept any more, or not
    * yet.
    */
  def reading[A](asOf: Long)(body: IndexReader => A): Option[A]

  override def found(
      wanted: Seq[InternalRow],
      asOf: Long,
      offered: Long,
      most: Int
  ): Option[FoundRows] = {
    val keyOf = IndexKeys.ofValues(this)
    val keys = wanted.map(row => keyOf(row).copy()).distinct
    summed(asOf, offered) { (reader, below) =>
      RowSums.within(most) { sums =>
        keys.foreach(reader.lookup(_, below)(sums.add))
        sums.all
      }
    }
  }

  /** The rows with the keys that the updates before `below` (ms) make, while the contents at `asOf`
    * are kept; None also where these times are not there any more.
    */
  def before(
      wanted: Seq[InternalRow],
      asOf: Long,
      below: Long,
      most: Int
  ): Option[Seq[UnsafeRow]] = {
    val keyOf = IndexKeys.ofValues(this)
    val keys = wanted.map(row => keyOf(row).copy()).distinct
    reading(asOf) { reader =>
      RowSums.within(most) { sums =>
        keys.foreach(reader.lookup(_, math.min(reader.upper, below))(sums.add))
        sums.rows
      }
    }.flatten
  }

  /** Gives all updates before `below` (ms) to `sink`, while the contents at `asOf` are kept; false:
    * these times are not there any more, or it has more than `most` updates of all times.
    */
  def allBefore(asOf: Long, below: Long, most: Long)(sink: KeyedUpdates): Boolean =
    reading(asOf) { reader =>
      val few = reader.updates <= most
      if (few) reader.all(math.min(reader.upper, below))(sink)
      few
    }.contains(true)

  override def all(
      asOf: Long,
      offered: Long,
      most: Int,
      wanted: Finishing
  ): Option[FoundRows] = summed(asOf, offered) { (reader, below) =>
    RowSums.within(most)(_ => wantedOf(reader, below, most, wanted))
  }

  private def wantedOf(
      reader: IndexReader,
      below: Long,
      most: Int,
      wanted: Finishing
  ): Seq[(UnsafeRow, Long)] = {
    if (reader.updates > wanted.mostUpdates) throw RowSums.TooMany
    val rows = new WantedRows(wanted, most)
    try reader.all(below)(rows)
    catch { case WantedRows.Enough => () }
    rows.rows
  }

  private def summed(asOf: Long, offered: Long)(
      rows: (IndexReader, Long) => Option[Seq[(UnsafeRow, Long)]]
  ): Option[FoundRows] =
    reading(asOf) { reader =>
      // It moves on meanwhile: what comes later is not looked at, or it would count twice.
      val reached = reader.upper
      rows(reader, math.min(reached, asOf + 1)).map(FoundRows(math.max(reached, offered), _))
    }.flatten
}

/** An index while somebody reads it. */
private[slackwater] trait IndexReader {

  /** Updates before it, in ms, are all there. */
  def upper: Long

  /** Gives each update of `key` before `below` (ms) to `visit`: the row, valid during the call, and
    * its diff.
    */
  def lookup(key: UnsafeRow, below: Long)(visit: (UnsafeRow, Long) => Unit): Unit

  /** How many updates it has, of all times. */
  def updates: Long

  /** Gives the updates of all keys to `sink`, key by key. */
  def all(below: Long)(sink: KeyedUpdates): Unit
}

/** Takes updates key by key. */
private[slackwater] trait KeyedUpdates {

  /** `row` is valid during the call. */
  def add(row: UnsafeRow, diff: Long): Unit

  /** All updates of a key were there. */
  def endKey(): Unit
}

/** The indexes that this driver keeps, by the programs that maintain them. */
private[slackwater] object CollectionIndexes {
  private val known = new ConcurrentHashMap[String, LocalIndex]()

  def find(program: String): Option[LocalIndex] = Option(known.get(program))
  def add(program: String, index: LocalIndex): Unit = { val _ = known.put(program, index) }
  def remove(program: String): Unit = { val _ = known.remove(program) }
}
