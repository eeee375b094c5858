package org.apache.spark.sql.slackwater.binding.analysis

import scala.util.Try

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.util.quoteIdentifier
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, Identifier, ViewCatalog}
import org.apache.spark.sql.connector.catalog.CatalogV2Implicits.IdentifierHelper
import org.apache.spark.sql.execution.command.ShowFunctionsCommand
import org.apache.spark.sql.slackwater.binding.Ours
import org.apache.spark.sql.slackwater.binding.command.{
  DescribeCollection,
  ShowCollections,
  ShowFunctionsOfUsers
}
import org.apache.spark.sql.slackwater.catalog.{DescribedTable, SlackwaterTable}
import org.apache.spark.sql.slackwater.process.SparkSessions
import org.apache.spark.sql.slackwater.protocol.DataErrors
import org.apache.spark.sql.slackwater.shims.V2Relation

/** Spark's statements over our objects to which Spark itself has no answer, or a misleading one.
  *
  * It comes after names are resolved and before Spark checks the plan: what it refuses would be
  * reported as a defect, be swallowed, or have an effect that the statement does not name.
  */
private[slackwater] final case class SparkStatements(session: SparkSession)
    extends Rule[LogicalPlan]
    with NamesOfSession {

  override def apply(plan: LogicalPlan): LogicalPlan = plan match {
    case command if SparkSessions.isEnabled(conf) =>
      refuse(command)
      answered(command)
    case other => other
  }

  /** What Spark would answer wrongly, or could not. */
  private def answered(plan: LogicalPlan): LogicalPlan = plan match {
    case describe @ DescribeRelation(of @ ResolvedTable(_, _, table: SlackwaterTable, _), _, _) =>
      val shown = describe.copy(relation = of.copy(table = new DescribedTable(table)))
      if (describe.isExtended) DescribeCollection(shown, table.description.kind) else shown
    case ShowTablesExtended(ResolvedNamespace(catalog, namespace, _), pattern, output)
        if isOurs(catalog) =>
      ShowCollections(namespace, pattern, output)
    // Catalog.getCreateTableString asks by a plan. The parser has sent the statement elsewhere.
    case ShowCreateTable(Created(name), false, _) =>
      val text = (SparkSessions.catalogName +: name.asMultipartIdentifier).map(quoteIdentifier)
      session.sessionState.sqlParser.parsePlan(text.mkString("SHOW CREATE TABLE ", ".", ""))
    case show: ShowFunctionsCommand => ShowFunctionsOfUsers(show)
    case create: CreateTableAsSelect if create.ignoreIfExists && isView(create.name) =>
      LocalRelation(Nil)
    case other => other
  }

  private def refuse(plan: LogicalPlan): Unit = plan match {
    case AddCheckConstraint(rows, _) =>
      // It stands over a plan that looks for rows which break the constraint.
      rows.collectFirst { case Named(name) => name }.foreach { name =>
        unsupported(s"ADD CONSTRAINT .. CHECK for $name", "NOT NULL of a column is enforced.")
      }
    case CreateIndex(Named(_), _, "", _, _, _)      => throw DataErrors.inScript("CREATE INDEX")
    case CreateIndex(Named(name), _, kind, _, _, _) =>
      unsupported(s"CREATE INDEX .. USING $kind on $name", "Leave USING and OPTIONS out.")
    case DropIndex(Named(name), _, _) =>
      unsupported(s"DROP INDEX .. ON $name", "Its tables have no indexes: there is none to drop.")
    case SetTableLocation(Named(name), _, _) =>
      unsupported(s"SET LOCATION for $name", "The environment keeps the files of its tables.")
    case AlterColumns(Named(name), specs) =>
      specs.foreach(spec => refuseNotNull(name, spec))
    case RenameTable(ResolvedTable(_, _, table: SlackwaterTable, _), _, true) =>
      wrongKind(DataErrors.nameOf(table.description), spoken(table.description.kind), "view")
    case AnalyzeTables(ResolvedNamespace(catalog, namespace, _), _) if isOurs(catalog) =>
      unsupported(
        s"ANALYZE TABLES for the schema ${namespace.mkString(".")}",
        "What is known of a collection is kept with its files: there is nothing to collect."
      )
    case like: CreateTableLike     => refuseLike(like)
    case create: CreateFlowCommand =>
      create.flowOperation.foreach {
        // Spark runs the INSERT before it refuses the flow.
        case insert: InsertIntoStatement => named(insert.table).foreach(refuseFlow)
        case write: V2WriteCommand       => named(write.table).foreach(refuseFlow)
        case _                           =>
      }
    case replace: ReplaceTable if isView(replace.name)         => refuseView(replace.name)
    case replace: ReplaceTableAsSelect if isView(replace.name) => refuseView(replace.name)
    case other => writes(other).foreach { case (table, evolves) => refuseWrite(table, evolves) }
  }

  /** The tables that a plan writes, and whether it may change their columns. */
  private def writes(plan: LogicalPlan): Seq[(LogicalPlan, Boolean)] = plan match {
    case insert: InsertIntoStatement => Seq((insert.table, insert.withSchemaEvolution))
    case append: AppendData          => Seq((append.table, append.withSchemaEvolution))
    case over: OverwriteByExpression => Seq((over.table, over.withSchemaEvolution))
    case write: V2WriteCommand       => Seq((write.table, false))
    case delete: DeleteFromTable     => Seq((delete.table, false))
    case update: UpdateTable         => Seq((update.table, false))
    case merge: MergeIntoTable       => Seq((merge.targetTable, false))
    case Union(all, _, _)            => all.flatMap(writes)
    case ctes: UnresolvedWith        => writes(ctes.child)
    case ctes: WithCTE               => writes(ctes.plan)
    case _                           => Nil
  }

  private def refuseWrite(table: LogicalPlan, evolves: Boolean): Unit =
    EliminateSubqueryAliases(table) match {
      case unresolved: UnresolvedRelation =>
        unresolved.multipartIdentifier match {
          case CatalogAndIdentifier(catalog, name) if isView(catalog, name) =>
            throw DataErrors.readOnly(full(name), "view")
          case _ =>
        }
      case resolved if evolves =>
        named(resolved).foreach(refuseEvolution)
      case _ =>
    }

  private def refuseLike(like: CreateTableLike): Unit = (like.name, like.source) match {
    case (ResolvedIdentifier(catalog, name), _) if isOurs(catalog) =>
      if (like.serdeInfo.nonEmpty) {
        unsupported(s"STORED AS and ROW FORMAT for ${full(name)}", "Leave it out.")
      }
      // As CREATE TABLE does for a view, and Spark's check for a table.
      if (isView(like.name) && !like.ifNotExists) {
        throw new TableAlreadyExistsException(name)
      }
    case (ResolvedIdentifier(catalog, name), Named(source)) =>
      unsupported(
        s"CREATE TABLE .. LIKE $source in the catalog ${catalog.name}",
        s"CREATE TABLE ${full(catalog.name, name)} AS SELECT * FROM $source WHERE false has the " +
          "same columns."
      )
    case _ =>
  }

  private def refuseNotNull(name: String, spec: AlterColumnSpec): Unit = spec.column match {
    case ResolvedFieldName(path, field) if spec.newNullability.contains(false) && field.nullable =>
      unsupported(
        s"SET NOT NULL for ${(path :+ field.name).mkString(".")} of $name",
        "Create a new table with the wanted columns and INSERT INTO it."
      )
    case _ =>
  }

  private def refuseFlow(name: String): Unit =
    unsupported(s"CREATE FLOW into $name", "CREATE MATERIALIZED VIEW keeps a query's result.")

  private def refuseView(name: LogicalPlan): Unit = name match {
    case ResolvedIdentifier(_, ident) => wrongKind(full(ident), "view", "table")
    case _                            =>
  }

  private def wrongKind(name: String, actual: String, expected: String): Unit =
    throw DataErrors.wrongKind(name, actual, expected)

  private def unsupported(feature: String, advice: String): Unit =
    throw DataErrors.unsupported(feature, advice)

  private def isView(name: LogicalPlan): Boolean = name match {
    case ResolvedIdentifier(catalog, ident) => isView(catalog, ident)
    case _                                  => false
  }

  private def isView(catalog: CatalogPlugin, name: Identifier): Boolean = catalog match {
    case views: ViewCatalog if isOurs(catalog) => Try(views.viewExists(name)).getOrElse(false)
    case _                                     => false
  }

  private def spoken(kind: String): String = kind.replace('-', ' ')

  /** Our collection by its name. */
  private object Named {
    def unapply(plan: LogicalPlan): Option[String] = named(plan)
  }

  /** The name of our table or view. */
  private object Created {
    def unapply(plan: LogicalPlan): Option[Identifier] = plan match {
      case ResolvedTable(_, name, _: SlackwaterTable, _)               => Some(name)
      case ResolvedPersistentView(catalog, name, _) if isOurs(catalog) => Some(name)
      case _                                                           => None
    }
  }

  private def named(plan: LogicalPlan): Option[String] = EliminateSubqueryAliases(plan) match {
    case ResolvedTable(_, _, table: SlackwaterTable, _) =>
      Some(DataErrors.nameOf(table.description))
    case V2Relation(Ours(table)) => Some(DataErrors.nameOf(table.description))
    case _                       => None
  }
}
