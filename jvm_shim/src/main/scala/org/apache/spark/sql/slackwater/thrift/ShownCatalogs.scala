package org.apache.spark.sql.slackwater.thrift

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.connector.catalog.CatalogManager
import org.apache.spark.sql.slackwater.process.SparkSessions

/** Whose rows are in the answer to a metadata call of a session.
  *
  * A session that has nothing to do with Slackwater gets Spark's answer as it is, and no coordinator is
  * started for it. Each other one sees both catalogs.
  *
  * @param ours
  *   whether the coordinator is asked
  * @param sparks
  *   whether Spark is
  * @param named
  *   whether Spark's rows name their catalog, which Spark leaves out
  */
final case class ShownCatalogs(ours: Boolean, sparks: Boolean, named: Boolean)

object ShownCatalogs {

  /** Those of a call that names `catalog`. Hive's driver says an empty name for "the current one", and
    * knows no other: it stands for both, like null.
    */
  def of(session: SparkSession, catalog: String): ShownCatalogs =
    if (!SparkSessions.isEnabled(session)) ShownCatalogs(ours = false, sparks = true, named = false)
    else if (catalog == SparkSessions.catalogName)
      ShownCatalogs(ours = true, sparks = false, named = true)
    else if (catalog == null || all(catalog)) {
      val both = isConcerned(session)
      ShownCatalogs(ours = both, sparks = true, named = both)
    } else {
      val named = catalog == CatalogManager.SESSION_CATALOG_NAME
      ShownCatalogs(ours = false, sparks = true, named = named)
    }

  private val all = Set("", "%")

  private def isConcerned(session: SparkSession): Boolean =
    SparkSessions.isConfigured(session) || SparkSessions.inSlackwater(session) ||
      SparkSessions.hasCalled(session)
}
