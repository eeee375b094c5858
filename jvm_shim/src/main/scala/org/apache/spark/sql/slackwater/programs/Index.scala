package org.apache.spark.sql.slackwater.programs

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.slackwater.arrangements.{Batch, CountSink, Sink}

/** The updates of a collection by key, in which the operators of a program look theirs up. */
private[slackwater] trait Index {

  /** How what it has comes to be there, as people read it: `indexed` or `scanned`. */
  def mode: String

  /** The updates that it keeps between ticks. */
  def rows: Long

  /** About how many keys these have. */
  def keys: Long

  /** Updates before it, in ms, are all there. */
  def upper: Long

  /** Says which keys the tick looks up, before it does. `keys` gives each, which is valid only then,
    * as often as it likes.
    */
  def want(tick: TickContext)(keys: (UnsafeRow => Unit) => Unit): Unit

  /** Gives each update of `key` before `below` (ms) to `sink`; see `Arrangement.lookup`. */
  def lookup(key: UnsafeRow, below: Long, sink: Sink): Unit

  /** Gives how often the rows of `key` are there before `below` (ms) to `sink`; see
    * `Arrangement.count`.
    */
  def count(key: UnsafeRow, below: Long, sink: CountSink): Unit

  /** Moves on to the tick's upper with the updates from its own on, which `updates` makes. */
  def advance(tick: TickContext)(updates: Long => Batch): Unit
}
