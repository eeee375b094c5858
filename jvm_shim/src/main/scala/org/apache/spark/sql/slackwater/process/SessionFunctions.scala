package org.apache.spark.sql.slackwater.process

import java.util.{Base64, Locale}

import scala.util.Try

import com.fasterxml.jackson.databind.node.{ArrayNode, ObjectNode}

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.expressions.{Expression, PythonFuncExpression}
import org.apache.spark.sql.classic
import org.apache.spark.sql.connector.catalog.CatalogManager
import org.apache.spark.sql.slackwater.lexer.Lexer
import org.apache.spark.sql.slackwater.protocol.Json
import org.apache.spark.sql.types.{DataType, StructField, StructType}

/** The temporary functions of a session, in the form in which a view's definition keeps functions.
  *
  * What Python has pickled can be kept. Others are only named, so that whoever calls one is told.
  */
object SessionFunctions {

  /** Of the temporary functions those whose names are words of the statement. */
  def namedIn(session: SparkSession, text: String): ArrayNode = {
    val state = session.asInstanceOf[classic.SparkSession].sessionState
    val wanted = Lexer.names(text)
    val described = Json.mapper.createArrayNode()
    state.catalog
      .listTemporaryFunctions()
      .map(_.funcName.toLowerCase(Locale.ROOT))
      .filter(wanted)
      .distinct
      .sorted
      .foreach { name =>
        val builder = state.functionRegistry.lookupFunctionBuilder(identifier(name))
        // One of Python takes any arguments; one that refuses to have none is of another kind.
        val call = builder.flatMap(build => Try(build(Nil)).toOption)
        described.add(call.flatMap(python(name, _)).getOrElse(ofSession(name)))
      }
    described
  }

  /** Under which registries have a temporary function. */
  private[slackwater] def identifier(name: String): FunctionIdentifier = FunctionIdentifier(
    name,
    Some(CatalogManager.SESSION_NAMESPACE),
    Some(CatalogManager.SYSTEM_CATALOG_NAME)
  )

  private def python(name: String, call: Expression): Option[ObjectNode] = call match {
    // What was broadcast is gone with the application.
    case pickled: PythonFuncExpression if pickled.func.broadcastVars.isEmpty =>
      val command = Base64.getEncoder.encodeToString(pickled.func.command.toArray)
      val node = Json
        .obj()
        .put("kind", "python")
        .put("name", name)
        .put("command", command)
        .put("eval_type", pickled.evalType)
        .put("deterministic", pickled.udfDeterministic)
        .put("version", pickled.func.pythonVer)
      node.set[ObjectNode]("returns", typed(call.dataType))
      Some(node)
    case _ => None
  }

  private def typed(dataType: DataType) = Json.ofSchema(
    StructType(Seq(StructField("value", dataType)))
  )

  private def ofSession(name: String): ObjectNode =
    Json.obj().put("kind", "session").put("name", name)
}
