package org.apache.spark.sql.slackwater

import java.util

import org.apache.spark.sql.connector.catalog.{CatalogV2Util, Column, Table, TableCapability}

/** A collection; `asOf` (milliseconds) pins the time at which it is read. */
class SlackwaterTable(
    val coordinator: Coordinator,
    val description: ObjectDescription,
    val asOf: Option[Long]
) extends Table {
  override def id: String = description.id
  override def name: String = s"slackwater.${description.schemaName}.${description.name}"
  override def columns: Array[Column] = CatalogV2Util.structTypeToV2Columns(description.schema)
  override def capabilities: util.Set[TableCapability] = util.Set.of(TableCapability.BATCH_READ)
}
