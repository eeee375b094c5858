package org.apache.spark.sql.slackwater.catalog

import java.util

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.connector.catalog.{
  CatalogV2Util,
  Column,
  StagedTable,
  SupportsWrite,
  TableCapability
}
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, WriteBuilder}
import org.apache.spark.sql.slackwater.protocol.{Coordinator, Json}
import org.apache.spark.sql.slackwater.scan.Sources
import org.apache.spark.sql.slackwater.write.{Insert, InsertBuilder, WriteTarget, WrittenRows}
import org.apache.spark.sql.types.StructType

/** A table to come: its definition goes to the coordinator with the rows, as one write.
  *
  * `target` is what the coordinator found the definition to be about, and gets it back.
  */
final class StagedCollection(
    val coordinator: Coordinator,
    override val name: String,
    definition: ObjectNode,
    target: JsonNode
) extends StagedTable
    with SupportsWrite
    with WriteTarget {
  private val stored: StructType = Json.schema(target.get("schema"))
  private var rows: Option[WrittenRows] = None

  override def id: String = target.get("id").asText
  override def columns: Array[Column] = CatalogV2Util.structTypeToV2Columns(stored)
  override def dataSchema: StructType = Sources.stored(stored)
  override def toString: String = name

  override def capabilities: util.Set[TableCapability] =
    util.EnumSet.of(TableCapability.V1_BATCH_WRITE, TableCapability.TRUNCATE)

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = new InsertBuilder(this)

  override def lockedId: String =
    if (target.get("replaces").isNull) id else target.get("replaces").asText

  override def address(request: ObjectNode): Unit = {
    request.set[ObjectNode]("table", target.get("replaces"))
    val _ = request.set[ObjectNode]("shard", target.get("shard"))
  }

  override def define(request: ObjectNode): Unit = {
    val stated = request.putObject("definition")
    stated.setAll[ObjectNode](definition)
    stated.set[ObjectNode]("target", target)
    val _ = stated.put("as_select", rows.nonEmpty)
  }

  override def take(all: WrittenRows): Unit = rows = Some(all)

  override def commitStagedChanges(): Unit = rows match {
    case Some(all) => all.commit()
    case None      => Insert.nothing(this)
  }

  override def abortStagedChanges(): Unit = rows.foreach(_.release())
}
