package org.apache.spark.sql.slackwater.write

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.connector.catalog.Table
import org.apache.spark.sql.slackwater.protocol.Coordinator
import org.apache.spark.sql.types.StructType

/** A collection that may be written. */
private[slackwater] trait WriteTarget extends Table {
  def coordinator: Coordinator

  /** The types of the rows that a write brings. */
  def dataSchema: StructType

  /** What reads that end in a write of this table keep others' writes away from. */
  def lockedId: String

  /** Says in a request about rows to which collection they go. */
  def address(request: ObjectNode): Unit

  /** Adds to the request of a write the definition that is committed with its rows, if any. */
  def define(request: ObjectNode): Unit = ()

  /** All rows are there: commits them, or keeps them until it is to. */
  def take(rows: WrittenRows): Unit
}
