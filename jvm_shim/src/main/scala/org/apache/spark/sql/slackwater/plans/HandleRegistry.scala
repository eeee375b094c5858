package org.apache.spark.sql.slackwater.plans

import scala.collection.mutable
import scala.util.Try

import com.fasterxml.jackson.databind.node.{ArrayNode, ObjectNode}

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.slackwater.binding.MzNow
import org.apache.spark.sql.slackwater.plans.expressions.KeyIssues
import org.apache.spark.sql.slackwater.protocol.Json
import org.apache.spark.sql.slackwater.values.Totality
import org.apache.spark.sql.types._

/** Numbers columns and expressions in the order in which they come. */
private[plans] final class HandleRegistry {
  private val attributes = mutable.ArrayBuffer.empty[Attribute]
  private val expressions = mutable.ArrayBuffer.empty[Expression]
  private val known = mutable.HashMap.empty[Expression, Int]
  private val numbers = mutable.HashMap.empty[ExprId, Int]

  def columns: IndexedSeq[Attribute] = attributes.toIndexedSeq
  def handles: IndexedSeq[Expression] = expressions.toIndexedSeq

  /** A new column that is like `attribute`. */
  def column(attribute: Attribute): Int = column(
    attribute.name,
    attribute.dataType,
    attribute.nullable
  )

  def column(name: String, dataType: DataType, nullable: Boolean): Int = {
    val made = AttributeReference(HandleRegistry.stable(name), dataType, nullable)()
    numbers(made.exprId) = attributes.size
    attributes += made
    attributes.size - 1
  }

  /** The number of an expression over the columns in `scope`; names above it do not count. */
  def handle(expression: Expression, scope: Scope): Int = expression match {
    case alias: Alias => handle(alias.child, scope)
    case other        =>
      val bound = other.transform { case a: AttributeReference =>
        val seen = scope.seen(a.exprId)
        attributes(seen.number).withNullability(seen.nullable)
      }
      if (bound.deterministic) known.getOrElseUpdate(bound, added(bound)) else added(bound)
  }

  private def added(expression: Expression): Int = {
    expressions += expression
    expressions.size - 1
  }

  def columnsJson: ArrayNode = {
    val array = Json.mapper.createArrayNode()
    attributes.foreach { column =>
      val node = array.addObject().put("name", column.name)
      HandleRegistry.putType(node, column.dataType)
      node.put("nullable", column.nullable)
    }
    array
  }

  def handlesJson: ArrayNode = {
    val array = Json.mapper.createArrayNode()
    expressions.foreach { e =>
      val node = array.addObject().put("sql", HandleRegistry.shown(e))
      HandleRegistry.putType(node, e.dataType)
      node
        .put("nullable", e.nullable)
        .put("deterministic", e.deterministic)
        .put("foldable", e.foldable)
        .put("throws", Totality.mayRaise(e))
        .put("uses_now", MzNow.isIn(e))
        .put("digest", Digest.of(e, numbers.get))
      val reads = e.collect { case a: AttributeReference => a.exprId }.distinct
      node.put("shape", Digest.of(e, id => Some(reads.indexOf(id)).filter(_ >= 0)))
      node.set[ObjectNode]("reads", HandleRegistry.array(reads.flatMap(numbers.get)))
      node.put("sure", HandleRegistry.isSure(e))
      node.set[ObjectNode](
        "columns",
        HandleRegistry.array(e.references.toSeq.map(a => numbers(a.exprId)).sorted)
      )
      e match {
        case a: AttributeReference => node.put("column", numbers(a.exprId))
        case _                     => node.putNull("column")
      }
    }
    array
  }
}

private[plans] object HandleRegistry {
  private val shownCharacters = 200

  def array(numbers: Iterable[Int]): ArrayNode = {
    val array = Json.mapper.createArrayNode()
    numbers.foreach(number => array.add(number))
    array
  }

  /** It has a value for every row: constants in it, such as numbers of another scale, are known. */
  private def isSure(expression: Expression): Boolean = {
    val known = expression.transformUp {
      case cast: Cast if cast.foldable =>
        Try(cast.eval()).fold(_ => cast, Literal(_, cast.dataType))
    }
    expression.deterministic && !MzNow.isIn(expression) && !Totality.mayRaise(known)
  }

  def shown(expression: Expression): String = expression.sql.take(shownCharacters)

  /** Spark's own form; collations are beside it, as they are in the metadata of Spark's fields. */
  private def putType(node: ObjectNode, dataType: DataType): Unit = {
    val field = Json.ofSchema(StructType(Seq(StructField("type", dataType)))).path("fields").get(0)
    node.set[ObjectNode]("type", field.get("type"))
    val collations = field.path("metadata").path("__COLLATIONS")
    if (collations.isObject) node.set[ObjectNode]("collations", collations)
    node.set[ObjectNode]("key_issues", Json.texts(KeyIssues.of(dataType)))
  }

  /** Names that Spark makes carry numbers that it counts in the process. */
  def stable(name: String): String =
    name.replaceAll("#\\d+L?", "").replaceAll("^(_[a-z_]+_)\\d+$", "$1")
}
