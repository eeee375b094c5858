package org.apache.spark.sql.slackwater.shims

import org.apache.spark.sql.connector.catalog.Table
import org.apache.spark.sql.execution.datasources.LogicalRelation
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.sources.BaseRelation

/** A `DataSourceV2Relation` by its table: its other fields differ between Spark's minors. */
private[slackwater] object V2Relation {
  def unapply(relation: DataSourceV2Relation): Some[Table] = Some(relation.table)
}

/** A `LogicalRelation` by its source: its other fields differ between Spark's minors. */
private[slackwater] object V1Relation {
  def unapply(relation: LogicalRelation): Some[BaseRelation] = Some(relation.relation)
}
