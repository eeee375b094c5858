package org.apache.spark.sql.slackwater.scan

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.catalyst.expressions.{Expression, UnsafeRow}
import org.apache.spark.sql.types.StructType

/** The rows of a collection by keys, in the memory of this driver. Thread-safe. */
private[slackwater] trait CollectionIndex {

  /** As users know it. */
  def name: String

  /** Of the rows that it has. */
  def columns: StructType

  /** The keys, over attributes with the names of `columns`. */
  def keys: Seq[Expression]

  /** The key of a row, from the values that `keys` have there, in a form in which equal ones have
    * equal bytes. A projection is for one thread.
    *
    * @param values
    *   expressions with the types of `keys`
    */
  def projection(values: Seq[Expression]): Seq[Expression]

  /** Runs `body` while the contents at `asOf` (ms) are kept; None: they are not kept any more, or not
    * yet.
    */
  def reading[A](asOf: Long)(body: IndexReader => A): Option[A]
}

/** An index while somebody reads it. */
private[slackwater] trait IndexReader {

  /** Updates before it, in ms, are all there. */
  def upper: Long

  /** Gives each update of `key` before `below` (ms) to `visit`: the row, valid during the call, and
    * its diff.
    */
  def lookup(key: UnsafeRow, below: Long)(visit: (UnsafeRow, Long) => Unit): Unit
}

/** The indexes that this driver keeps, by the programs that maintain them. */
private[slackwater] object CollectionIndexes {
  private val known = new ConcurrentHashMap[String, CollectionIndex]()

  def find(program: String): Option[CollectionIndex] = Option(known.get(program))
  def add(program: String, index: CollectionIndex): Unit = { val _ = known.put(program, index) }
  def remove(program: String): Unit = { val _ = known.remove(program) }
}
