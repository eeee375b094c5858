package org.apache.spark.sql.slackwater.binding.command

import java.util

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.util.StringUtils
import org.apache.spark.sql.classic
import org.apache.spark.sql.connector.catalog.{
  Identifier,
  Relation,
  RelationCatalog,
  TableCatalog,
  View
}
import org.apache.spark.sql.execution.command.LeafRunnableCommand
import org.apache.spark.sql.slackwater.catalog.SlackwaterTable
import org.apache.spark.sql.slackwater.process.SparkSessions

/** SHOW TABLE EXTENDED of one of our schemas: what can be read in it, plain views included.
  *
  * Spark's own lists no views of such a catalog. Tools take the kind of a relation, and its columns,
  * from the text of the last column.
  */
case class ShowCollections(
    namespace: Seq[String],
    pattern: String,
    override val output: Seq[Attribute]
) extends LeafRunnableCommand {

  override def run(session: SparkSession): Seq[Row] = {
    val state = session.asInstanceOf[classic.SparkSession].sessionState
    val catalog =
      state.catalogManager.catalog(SparkSessions.catalogName).asInstanceOf[RelationCatalog]
    val schema = namespace.toArray
    val found = (catalog.listTables(schema) ++ catalog.listViews(schema)).sortBy(_.name)
    val ours = found.toSeq.filter(matches).flatMap(row(catalog, _))
    ours ++ state.catalog.listTempViews(namespace.mkString("."), pattern).map { view =>
      val name = view.identifier
      Row(name.database.getOrElse(""), name.table, true, s"${view.simpleString}\n")
    }
  }

  private def matches(name: Identifier): Boolean =
    StringUtils.filterPattern(Seq(name.name), pattern).nonEmpty

  /** What was dropped meanwhile, or cannot be read, takes nothing from the others. */
  private def row(catalog: RelationCatalog, name: Identifier): Option[Row] =
    try {
      val shown = details(catalog.loadRelation(name))
      val lines = Seq(
        s"Catalog: ${catalog.name}",
        s"Namespace: ${namespace.mkString(".")}",
        s"Table: ${name.name}"
      ) ++ shown
      Some(Row(namespace.mkString("."), name.name, false, lines.mkString("", "\n", "\n")))
    } catch {
      case NonFatal(_) => None
    }

  private def details(relation: Relation): Seq[String] = relation match {
    case table: SlackwaterTable =>
      val description = table.description
      Seq(s"Type: ${Kind.of(description.kind)}") ++ properties(table.properties) :+
        s"Schema: ${description.schema.treeString}"
    case view: View =>
      Seq("Type: VIEW", s"View Text: ${view.queryText}") ++ properties(view.properties) :+
        s"Schema: ${view.schema.treeString}"
    case other => throw new MatchError(other)
  }

  private def properties(all: util.Map[String, String]): Seq[String] = {
    val ofUser = all.asScala.toMap -- Seq(TableCatalog.PROP_TABLE_TYPE, TableCatalog.PROP_COMMENT)
    val pairs = ofUser.toSeq.sorted.map { case (key, value) => s"$key=$value" }
    Option(all.get(TableCatalog.PROP_COMMENT)).map("Comment: " + _).toSeq ++
      Option.when(pairs.nonEmpty)(pairs.mkString("Table Properties: [", ", ", "]"))
  }
}
