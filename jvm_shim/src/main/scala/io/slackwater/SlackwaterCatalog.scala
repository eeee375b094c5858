package io.slackwater

import java.util

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.catalyst.analysis._
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.slackwater.catalog.{
  CollectionChangelog,
  Definitions,
  GivenRelations,
  SlackwaterTable,
  StagedCollection
}
import org.apache.spark.sql.slackwater.process.SparkSessions
import org.apache.spark.sql.slackwater.protocol.{Coordinator, DataErrors, Json, ObjectDescription}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The catalog `slackwater`: the collections and views of an environment.
  *
  * It keeps nothing: each answer is what the coordinator says now, because other applications change
  * the same catalog. Errors are the coordinator's too, except where Spark expects an exception of its own.
  */
class SlackwaterCatalog
    extends RelationCatalog
    with StagingTableCatalog
    with SupportsNamespaces
    with FunctionCatalog {

  /** Texts that are stored name the catalog: under another name they would mean nothing. */
  override def initialize(name: String, options: CaseInsensitiveStringMap): Unit =
    if (name != SparkSessions.catalogName) {
      throw DataErrors.unsupported(
        s"The catalog of Slackwater under the name $name",
        s"Set spark.sql.catalog.${SparkSessions.catalogName} instead of spark.sql.catalog.$name."
      )
    }

  override def name: String = SparkSessions.catalogName

  /** It has no functions of its own; those of Spark and of other catalogs are found beside it. */
  override def listFunctions(namespace: Array[String]): Array[Identifier] =
    if (namespaceExists(namespace)) Array.empty else throw new NoSuchNamespaceException(namespace)

  override def loadFunction(ident: Identifier): UnboundFunction =
    throw new NoSuchFunctionException(ident)

  override def defaultNamespace: Array[String] = Array("default")

  override def capabilities: util.Set[TableCatalogCapability] =
    util.Set.of(TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE)

  override def loadRelation(ident: Identifier): Relation = {
    val description = describe(ident).getOrElse(throw new NoSuchTableException(ident))
    description.view match {
      case Some(definition) => Definitions.view(description, definition)
      case None if unreadable.contains(description.kind) =>
        throw DataErrors.wrongKind(text(ident), description.kind, "relation")
      case None => table(description, None)
    }
  }

  override def tableExists(ident: Identifier): Boolean = describe(ident).exists(_.view.isEmpty)

  override def viewExists(ident: Identifier): Boolean = describe(ident).exists(_.view.nonEmpty)

  /** To write it. Raises SLACKWATER_READ_ONLY_RELATION for all that has no rows of its own. */
  override def loadTable(ident: Identifier, privileges: util.Set[TableWritePrivilege]): Table = {
    describe(ident)
      .filterNot(found => found.writable || unreadable.contains(found.kind))
      .foreach { found =>
        throw DataErrors.readOnly(text(ident), found.kind)
      }
    loadTable(ident)
  }

  /** For `TIMESTAMP AS OF`; Spark gives microseconds. */
  override def loadTable(ident: Identifier, timestampMicros: Long): Table =
    loadAt(ident, Math.floorDiv(timestampMicros, 1000L))

  /** For `VERSION AS OF`: a version is a time in milliseconds. */
  override def loadTable(ident: Identifier, version: String): Table = {
    loadAt(ident, SlackwaterTable.version(version))
  }

  /** For `CHANGES`. */
  override def loadChangelog(
      ident: Identifier,
      context: ChangelogContext,
      options: CaseInsensitiveStringMap
  ): Changelog = loadRelation(ident) match {
    case table: SlackwaterTable => CollectionChangelog.of(table, context)
    case _                      =>
      throw DataErrors.unsupported(
        s"CHANGES of the view ${text(ident)}",
        "Make a materialized view of its query."
      )
  }

  private def loadAt(ident: Identifier, timeMs: Long): Table = {
    val description = describe(ident).getOrElse(throw new NoSuchTableException(ident))
    if (description.view.nonEmpty) {
      throw DataErrors.unsupported(
        s"TIMESTAMP AS OF and VERSION AS OF behind the view ${text(ident)}",
        s"Write AS OF $timeMs at the end of the query."
      )
    }
    table(description, Some(timeMs))
  }

  override def listTables(namespace: Array[String]): Array[Identifier] =
    list(namespace)(kind => kind != viewKind && !unreadable.contains(kind))

  override def listViews(namespace: Array[String]): Array[Identifier] =
    list(namespace)(_ == viewKind)

  override def createTable(ident: Identifier, info: TableInfo): Table = {
    val body = request(ident)
    Definitions.putTable(body, text(ident), info)
    val answer = creating(new TableAlreadyExistsException(ident)) {
      coordinator.call("/v1/catalog/create_table", body)
    }
    table(Json.objectDescription(answer), None)
  }

  override def createTable(
      ident: Identifier,
      columns: Array[Column],
      partitions: Array[Transform],
      properties: util.Map[String, String]
  ): Table = createTable(
    ident,
    new TableInfo.Builder()
      .withColumns(columns)
      .withPartitions(partitions)
      .withProperties(properties)
      .build()
  )

  /** With the columns of the other relation. What else it is, keeps and says is its own. */
  override def createTableLike(ident: Identifier, info: TableInfo, source: Table): Table =
    createTable(ident, Definitions.columns(source), Array.empty[Transform], info.properties)

  override def stageCreate(ident: Identifier, info: TableInfo): StagedTable =
    stage(ident, info, "create")

  override def stageReplace(ident: Identifier, info: TableInfo): StagedTable =
    stage(ident, info, "replace")

  override def stageCreateOrReplace(ident: Identifier, info: TableInfo): StagedTable =
    stage(ident, info, "create_or_replace")

  override def alterTable(ident: Identifier, changes: TableChange*): Table = {
    val body = request(ident)
    val list = body.putArray("changes")
    changes.foreach(change => list.add(Definitions.change(change)))
    table(Json.objectDescription(coordinator.call("/v1/catalog/alter_table", body)), None)
  }

  override def dropTable(ident: Identifier): Boolean = drop("/v1/catalog/drop_table", ident)

  /** A collection has no trash to go to. */
  override def purgeTable(ident: Identifier): Boolean = dropTable(ident)

  override def renameTable(from: Identifier, to: Identifier): Unit =
    rename(from, to)(new TableAlreadyExistsException(to))

  override def createView(ident: Identifier, view: View): View =
    create(ident, view, replace = false)

  override def createOrReplaceView(ident: Identifier, view: View): View =
    create(ident, view, replace = true)

  override def replaceView(ident: Identifier, view: View): View = {
    if (!viewExists(ident)) throw new NoSuchViewException(ident)
    create(ident, view, replace = true)
  }

  override def dropView(ident: Identifier): Boolean = drop("/v1/catalog/drop_view", ident)

  override def renameView(from: Identifier, to: Identifier): Unit =
    rename(from, to)(new ViewAlreadyExistsException(to))

  override def listNamespaces: Array[Array[String]] = namespaces.map(found => Array(found._1))

  override def listNamespaces(namespace: Array[String]): Array[Array[String]] =
    if (namespace.isEmpty) listNamespaces
    else if (namespaceExists(namespace)) Array.empty
    else throw new NoSuchNamespaceException(namespace)

  override def namespaceExists(namespace: Array[String]): Boolean =
    GivenRelations.current.isDefined || find(namespace).nonEmpty

  override def loadNamespaceMetadata(namespace: Array[String]): util.Map[String, String] = {
    val (_, comment) = find(namespace).getOrElse(throw new NoSuchNamespaceException(namespace))
    comment.map(SupportsNamespaces.PROP_COMMENT -> _).toMap.asJava
  }

  override def createNamespace(
      namespace: Array[String],
      metadata: util.Map[String, String]
  ): Unit = {
    // Spark asks with IF NOT EXISTS as well, and a refused call would fail the transaction block.
    if (namespaceExists(namespace)) throw new NamespaceAlreadyExistsException(namespace)
    metadata.asScala.keys.filterNot(keptOfSchema).foreach { property =>
      throw DataErrors.unsupported(
        s"The property $property of the schema ${namespace.mkString(".")}",
        "Leave it out; COMMENT describes a schema."
      )
    }
    val body = request(namespace)
    body.set[ObjectNode]("properties", Json.textMap(metadata.asScala))
    body.put("if_not_exists", false)
    creating(new NamespaceAlreadyExistsException(namespace)) {
      coordinator.call("/v1/catalog/create_namespace", body)
    }
  }

  override def alterNamespace(namespace: Array[String], changes: NamespaceChange*): Unit = {
    if (!namespaceExists(namespace)) throw new NoSuchNamespaceException(namespace)
    val comments = changes.map {
      case set: NamespaceChange.SetProperty if isComment(set.property)          => set.value
      case remove: NamespaceChange.RemoveProperty if isComment(remove.property) => ""
      case _                                                                    =>
        throw DataErrors.unsupported(
          s"Changing properties of the schema ${namespace.mkString(".")}",
          "COMMENT ON SCHEMA describes it."
        )
    }
    comments.lastOption.foreach { comment =>
      val body = request(namespace)
      body.put("comment", comment)
      coordinator.call("/v1/catalog/alter_namespace", body)
    }
  }

  private def isComment(property: String): Boolean = property == SupportsNamespaces.PROP_COMMENT

  override def dropNamespace(namespace: Array[String], cascade: Boolean): Boolean = {
    val exists = namespaceExists(namespace)
    if (exists) {
      val body = request(namespace)
      body.put("cascade", cascade)
      coordinator.call("/v1/catalog/drop_namespace", body)
    }
    exists
  }

  /** Spark says itself who the owner is. */
  private val keptOfSchema =
    Set(SupportsNamespaces.PROP_COMMENT, SupportsNamespaces.PROP_OWNER)

  private val viewKind = "view"
  private val unreadable = Set("sink", "index", "secret", "connection")

  private def coordinator: Coordinator = SparkSessions.coordinator(SparkSessions.active)

  private def table(description: ObjectDescription, asOf: Option[Long]): Table =
    new SlackwaterTable(coordinator, description, asOf)

  private def request(namespace: Array[String]): ObjectNode =
    SparkSessions
      .request(SparkSessions.active)
      .set[ObjectNode]("namespace", Json.texts(namespace))

  private def request(ident: Identifier): ObjectNode =
    request(ident.namespace).put("name", ident.name)

  private def stage(ident: Identifier, info: TableInfo, mode: String): StagedTable = {
    val definition = Json.obj()
    definition.set[ObjectNode]("namespace", Json.texts(ident.namespace))
    definition.put("name", ident.name)
    definition.put("mode", mode)
    Definitions.putTable(definition, text(ident), info)
    val body = SparkSessions.request(SparkSessions.active)
    body.setAll[ObjectNode](definition)
    val target = creating(new TableAlreadyExistsException(ident)) {
      try coordinator.call("/v1/catalog/stage_table", body)
      catch {
        case error: AnalysisException if error.getCondition == "SLACKWATER_UNKNOWN_OBJECT" =>
          throw new NoSuchTableException(ident)
      }
    }
    new StagedCollection(coordinator, text(ident), definition, target)
  }

  private def describe(ident: Identifier): Option[ObjectDescription] =
    if (ident.namespace.length != 1) None
    else
      GivenRelations.current match {
        case Some(given) => given.find(ident.namespace.head, ident.name)
        case None        => coordinator.load(ident.namespace.head, ident.name)(request(ident))
      }

  private def list(namespace: Array[String])(wanted: String => Boolean): Array[Identifier] = {
    if (!namespaceExists(namespace)) throw new NoSuchNamespaceException(namespace)
    val body = request(namespace)
    elements(coordinator.call("/v1/catalog/list", body).get("objects"))
      .filter(found => wanted(found.get("kind").asText))
      .map(found => Identifier.of(namespace, found.get("name").asText))
  }

  private def namespaces: Array[(String, Option[String])] =
    elements(
      coordinator
        .call("/v1/catalog/namespaces", SparkSessions.request(SparkSessions.active))
        .get("namespaces")
    ).map { found =>
      (found.get("name").asText, Option(found.path("comment").asText(null)))
    }

  private def find(namespace: Array[String]): Option[(String, Option[String])] =
    if (namespace.length != 1) None
    else namespaces.find(_._1.equalsIgnoreCase(namespace.head))

  private def create(ident: Identifier, view: View, replace: Boolean): View = {
    val body = request(ident)
    Definitions.putView(body, text(ident), view, replace)
    creating(new ViewAlreadyExistsException(ident)) {
      coordinator.call("/v1/catalog/create_view", body)
    }
    view
  }

  private def drop(path: String, ident: Identifier): Boolean =
    coordinator.call(path, request(ident)).path("dropped").asBoolean

  private def rename(from: Identifier, to: Identifier)(taken: => Throwable): Unit = {
    val body = request(from)
    body.set[ObjectNode]("to_namespace", Json.texts(to.namespace))
    body.put("to_name", to.name)
    creating(taken)(coordinator.call("/v1/catalog/rename_table", body))
  }

  /** Spark's statements with IF NOT EXISTS rely on Spark's own exceptions. */
  private def creating(taken: => Throwable)(call: => JsonNode): JsonNode =
    try call
    catch {
      case error: AnalysisException if takenConditions(error.getCondition) => throw taken
    }

  private val takenConditions = Set(
    "SLACKWATER_ALREADY_EXISTS",
    "SLACKWATER_TABLE_ALREADY_EXISTS",
    "SLACKWATER_SCHEMA_ALREADY_EXISTS"
  )

  private def elements(node: JsonNode): Array[JsonNode] = node.elements.asScala.toArray

  private def text(ident: Identifier): String =
    (name +: ident.namespace :+ ident.name).mkString(".")
}
