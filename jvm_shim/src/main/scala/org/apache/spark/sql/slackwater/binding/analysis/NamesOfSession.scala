package org.apache.spark.sql.slackwater.binding.analysis

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.classic
import org.apache.spark.sql.connector.catalog.{
  CatalogManager,
  CatalogPlugin,
  Identifier,
  LookupCatalog
}
import org.apache.spark.sql.slackwater.process.SparkSessions
import org.apache.spark.sql.slackwater.protocol.DataErrors

/** Finds what a plan names, in the session that it belongs to. */
private[slackwater] trait NamesOfSession extends LookupCatalog {
  def session: SparkSession

  override protected lazy val catalogManager: CatalogManager =
    session.asInstanceOf[classic.SparkSession].sessionState.catalogManager

  protected def isOurs(catalog: CatalogPlugin): Boolean = catalog.name == SparkSessions.catalogName

  protected def full(name: Identifier): String = full(SparkSessions.catalogName, name)

  protected def full(catalog: String, name: Identifier): String =
    (catalog +: name.namespace :+ name.name).mkString(".")

  protected def refuseEvolution(name: String): Unit = throw DataErrors.unsupported(
    s"WITH SCHEMA EVOLUTION for $name",
    "Leave it out; ALTER TABLE .. ADD COLUMN adds a column."
  )
}
