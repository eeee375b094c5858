package org.apache.spark.sql.slackwater.stream

import org.apache.spark.sql.{classic, SparkSession}
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, SubqueryAlias}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.streaming.Unassigned
import org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, Identifier}
import org.apache.spark.sql.connector.catalog.CatalogV2Implicits._
import org.apache.spark.sql.execution.datasources.DataSource
import org.apache.spark.sql.execution.streaming.runtime.StreamingRelation
import org.apache.spark.sql.slackwater.binding.analysis.NamesOfSession
import org.apache.spark.sql.slackwater.catalog.SlackwaterTable
import org.apache.spark.sql.slackwater.process.SparkSessions
import org.apache.spark.sql.slackwater.protocol.DataErrors

/** Resolves streams of collections.
  *
  * With the option `changes` a stream has more columns than its collection, and `*` means all of
  * them: so this is a rule for hints, which come before Spark resolves names.
  */
private[slackwater] final case class ResolveStreams(session: SparkSession)
    extends Rule[LogicalPlan]
    with NamesOfSession {

  override def apply(plan: LogicalPlan): LogicalPlan =
    if (!SparkSessions.isEnabled(session)) plan
    else
      plan.resolveOperators { case relation @ UnresolvedRelation(Ident(catalog, name), _, true) =>
        collection(catalog, name).fold[LogicalPlan](relation)(streamed(relation, name, _))
      }

  /** The name of something in our catalog. */
  private object Ident {
    private lazy val state = session.asInstanceOf[classic.SparkSession].sessionState

    def unapply(name: Seq[String]): Option[(CatalogPlugin, Identifier)] =
      if (state.catalog.isTempView(name)) None
      else CatalogAndIdentifier.unapply(name).filter { case (catalog, _) => isOurs(catalog) }
  }

  private def collection(catalog: CatalogPlugin, name: Identifier): Option[SlackwaterTable] =
    if (!catalog.asTableCatalog.tableExists(name)) None
    else
      catalog.asTableCatalog.loadTable(name) match {
        case table: SlackwaterTable => Some(table)
        case _                      => None
      }

  private def streamed(
      relation: UnresolvedRelation,
      name: Identifier,
      table: SlackwaterTable
  ): LogicalPlan = {
    // Executed as any statement is, it would fail without a condition that has a name.
    if (relation.origin.sqlText.nonEmpty) {
      throw DataErrors.unsupported(
        s"STREAM ${full(name)} in a statement",
        "Use spark.readStream.table(...), or SUBSCRIBE, to follow its changes."
      )
    }
    val identifier = SparkSessions.catalogName +: name.namespace.toSeq :+ name.name
    val options = StreamOptions.of(full(name), relation.options)
    if (table.description.kind == "system-table") {
      throw DataErrors.unsupported(
        s"readStream on ${full(name)}",
        "It shows now, and keeps no history."
      )
    }
    val found = StreamedCollection(identifier, table.id, table.dataSchema, options)
    val source = DataSource(
      session,
      className = classOf[CollectionStreamProvider].getName,
      userSpecifiedSchema = Some(found.schema),
      options = found.described
    )
    SubqueryAlias(
      identifier,
      StreamingRelation(source, found.name, toAttributes(found.schema), Unassigned)
    )
  }
}
