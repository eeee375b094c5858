package org.apache.spark.sql.slackwater.bridge

import java.util.{ArrayList, Base64, HashMap}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{ArrayNode, ObjectNode}

import org.apache.spark.api.python.{PythonBroadcast, SimplePythonFunction}
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.catalog.{
  CatalogFunction,
  FunctionResource,
  FunctionResourceType,
  SQLFunction
}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.CatalogManager
import org.apache.spark.sql.execution.python.UserDefinedPythonFunction
import org.apache.spark.sql.slackwater.process.SessionFunctions
import org.apache.spark.sql.slackwater.protocol.{DataErrors, Json}

/** The functions that queries of a session may call besides Spark's own.
  *
  * A definition keeps those that its query calls, so that it means the same wherever and whenever it
  * is planned: pickled functions of Python, and what the session catalog said of its functions. Not
  * thread-safe: the session has them while a query is analyzed.
  */
private[bridge] final class KeptFunctions(session: SparkSession) {
  private val catalog = session.sessionState.catalog
  private val scalars = session.sessionState.functionRegistry
  private val tables = session.sessionState.tableFunctionRegistry

  /** Runs `analysis` with the functions that are `kept`, and describes all that it has called.
    *
    * Those of the catalog are looked up anew each time: a session would keep what it has once seen.
    */
  def within[A](kept: Seq[JsonNode])(analysis: => A): (A, ArrayNode) = {
    val called = mutable.LinkedHashSet.empty[JsonNode]
    val (ofCatalog, temporary) = kept.partition(kindOf(_) == "catalog")
    ofCatalogNow.foreach(catalog.unregisterFunction)
    try {
      ofCatalog.foreach(definition => register(CatalogDefinition.read(definition)))
      temporary.foreach(definition => register(definition)(called.add(definition)))
      val result = analysis
      val described = Json.mapper.createArrayNode()
      val known = ofCatalog.map(d => CatalogDefinition.read(d).identifier -> d).toMap
      val loaded = ofCatalogNow.map(id => known.getOrElse(id, CatalogDefinition.write(stored(id))))
      (called.toSeq ++ loaded).foreach(definition => described.add(definition))
      (result, described)
    } finally
      temporary.foreach { definition =>
        val id = SessionFunctions.identifier(nameOf(definition))
        val _ = (scalars.dropFunction(id), tables.dropFunction(id))
      }
  }

  /** The catalog's functions that the session has seen. */
  private def ofCatalogNow: Seq[FunctionIdentifier] =
    (scalars.listFunction() ++ tables.listFunction()).distinct
      .filter(id =>
        id.database.isDefined && !id.catalog.contains(CatalogManager.SYSTEM_CATALOG_NAME)
      )
      .sortBy(_.unquotedString)

  private def stored(id: FunctionIdentifier): CatalogFunction =
    catalog.externalCatalog.getFunction(id.database.get, id.funcName).copy(identifier = id)

  private def register(function: CatalogFunction): Unit =
    if (SQLFunction.isSQLFunction(function.className)) {
      val made = SQLFunction.fromCatalogFunction(function, session.sessionState.sqlParser)
      if (made.isTableFunc) catalog.registerSQLTableFunction(made, overrideIfExists = true)
      else catalog.registerSQLScalarFunction(made, overrideIfExists = true)
    } else {
      catalog.loadFunctionResources(function.resources)
      catalog.registerFunction(function, overrideIfExists = true)
    }

  private def register(definition: JsonNode)(called: => Boolean): Unit = {
    val name = nameOf(definition)
    kindOf(definition) match {
      case "python" =>
        val function = PythonDefinition.read(definition, session)
        scalars.createOrReplaceTempFunction(
          name,
          arguments => {
            val _ = called
            function.builder(arguments)
          },
          "python_udf"
        )
      case "session" =>
        scalars.createOrReplaceTempFunction(name, _ => refuse(name), "internal")
        tables.createOrReplaceTempFunction(name, _ => refuse(name), "internal")
    }
  }

  private def refuse(name: String): Nothing = throw DataErrors.temporaryFunction(name)

  private def kindOf(definition: JsonNode): String = definition.get("kind").asText
  private def nameOf(definition: JsonNode): String = definition.get("name").asText
}

private[bridge] object KeptFunctions {
  def read(json: String): Seq[JsonNode] = Json.mapper.readTree(json).asScala.toSeq
}

/** A function of the session catalog as its definition is written there. */
private object CatalogDefinition {
  def write(function: CatalogFunction): ObjectNode = {
    val id = function.identifier
    val node = Json
      .obj()
      .put("kind", "catalog")
      .put("name", id.unquotedString)
      .put("class", function.className)
    node.set[ObjectNode]("identifier", Json.texts(id.catalog ++ id.database ++ Seq(id.funcName)))
    val resources = node.putArray("resources")
    function.resources.foreach { each =>
      resources.addObject().put("type", each.resourceType.resourceType).put("uri", each.uri)
    }
    node
  }

  def read(node: JsonNode): CatalogFunction = {
    val parts = node.get("identifier").asScala.map(_.asText).toSeq
    val resources = node.get("resources").asScala.toSeq.map { each =>
      val kind = FunctionResourceType.fromString(each.get("type").asText)
      FunctionResource(kind, each.get("uri").asText)
    }
    val id = FunctionIdentifier(parts.last, parts.init.lastOption, parts.init.init.lastOption)
    CatalogFunction(id, node.get("class").asText, resources)
  }
}

/** A function that Python has pickled, as `SessionFunctions` describes it. */
private object PythonDefinition {
  private val command = "spark.pyspark.python"

  /** It runs in the Python of this application, and fails in one of another version. */
  def read(node: JsonNode, session: SparkSession): UserDefinedPythonFunction = {
    val python = session.sparkContext.getConf
      .getOption(command)
      .orElse(sys.env.get("PYSPARK_PYTHON"))
      .getOrElse("python3")
    val function = new SimplePythonFunction(
      Base64.getDecoder.decode(node.get("command").asText),
      new HashMap[String, String],
      new ArrayList[String],
      python,
      node.get("version").asText,
      new ArrayList[Broadcast[PythonBroadcast]],
      null
    )
    UserDefinedPythonFunction(
      node.get("name").asText,
      function,
      Json.schema(node.get("returns")).head.dataType,
      node.get("eval_type").asInt,
      node.get("deterministic").asBoolean
    )
  }
}
