package org.apache.spark.sql.slackwater.catalog

import java.util.Locale

import org.apache.spark.sql.connector.catalog.{MetadataColumn, SupportsMetadataColumns}
import org.apache.spark.sql.connector.write.{RowLevelOperationBuilder, RowLevelOperationInfo}
import org.apache.spark.sql.slackwater.write.{RowLevel, WholeRowColumn}

/** A table in UPDATE, DELETE and MERGE, once all names are resolved: it has its whole rows too.
  *
  * No statement can name the column of whole rows, and it has no name that a column has.
  */
final class IdentifiedTable(table: SlackwaterTable)
    extends SlackwaterTable(table.coordinator, table.description, table.asOf)
    with SupportsMetadataColumns {

  private val wholeRow: String = {
    val taken = dataSchema.names.map(_.toLowerCase(Locale.ROOT)).toSet
    Iterator.iterate(WholeRowColumn.Name)(_ + "_").find(!taken(_)).get
  }

  override def metadataColumns: Array[MetadataColumn] =
    Array(new WholeRowColumn(wholeRow, dataSchema))

  override def newRowLevelOperationBuilder(
      info: RowLevelOperationInfo
  ): RowLevelOperationBuilder = {
    requireWritable()
    () => new RowLevel(this, info.command, wholeRow, None)
  }
}
