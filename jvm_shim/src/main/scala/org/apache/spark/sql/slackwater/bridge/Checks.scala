package org.apache.spark.sql.slackwater.bridge

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions
import org.apache.spark.sql.catalyst.plans.logical.{LocalRelation, Project}
import org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE
import org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.protocol.{Errors, Wire}
import org.apache.spark.sql.slackwater.values.Stored
import org.apache.spark.sql.types._

/** Conditions over the requests of webhooks, by id. They are computed in the thread that asks,
  * without a job.
  *
  * @param session
  *   one of its own: it has functions that queries do not know
  */
private[bridge] final class Checks(session: SparkSession) {
  private val checks = new ConcurrentHashMap[String, Check]()

  session.sessionState.functionRegistry
    .createOrReplaceTempFunction("hmac", Hmac.of, "internal")
  session.sessionState.functionRegistry
    .createOrReplaceTempFunction("constant_time_eq", ConstantTimeEq.of, "internal")

  /** The id of a condition over columns of this schema, whose last one is when the request came: it
    * is what the condition calls now. Raises SLACKWATER_INVALID_CHECK, and what Spark says of it.
    */
  def open(text: String, schema: StructType): String = {
    val id = UUID.randomUUID.toString
    checks.put(id, session.withActive(new Check(session, condition(text, schema), schema)))
    id
  }

  /** For each row of an Arrow IPC stream whether the condition is true: 1, or 0. */
  def holds(id: String, rows: Array[Byte]): Array[Byte] =
    session.withActive(checks.get(id).holds(rows))

  def close(id: String): Unit = checks.remove(id)

  private def condition(text: String, schema: StructType): Expression = {
    val parsed = session.sessionState.sqlParser.parseExpression(text)
    if (SubqueryExpression.hasSubquery(parsed)) refuse("it has a subquery")
    val columns = toAttributes(schema)
    // The time has no name, and is seen by functions alone.
    val plan = Project(Seq(Alias(parsed, "condition")()), LocalRelation(columns.init))
    val analyzed = session.sessionState.executePlan(plan).analyzed match {
      case Project(Seq(Alias(found, _)), _: LocalRelation) => found
      case _ => refuse("it has an aggregate, a window or a generator")
    }
    if (analyzed.dataType != BooleanType) {
      refuse(s"it is ${analyzed.dataType.sql} and not BOOLEAN")
    }
    val plain = plainly(timed(analyzed, columns.last))
    val bound = BindReferences.bindReference(plain, AttributeSeq(columns))
    bound.foreach {
      case e if e.children.isEmpty && e.containsPattern(CURRENT_LIKE) =>
        refuse(s"${e.prettyName}() means nothing for a request")
      case e: Unevaluable => refuse(s"${e.prettyName} cannot be computed for a request")
      // What is above such a function is not deterministic either.
      case e if !e.deterministic && e.children.forall(_.deterministic) =>
        refuse(s"${e.prettyName}() has another value each time")
      case _ =>
    }
    bound
  }

  private def timed(expression: Expression, received: Attribute): Expression =
    expression.transform {
      case _: CurrentTimestamp | _: Now => received
      case CurrentDate(zone)            => Cast(received, DateType, zone)
      case LocalTimestamp(zone)         => Cast(received, TimestampNTZType, zone)
      case _: CurrentTimeZone           => Literal(session.sessionState.conf.sessionLocalTimeZone)
    }

  /** Without what only an optimizer knows how to compute. */
  private def plainly(expression: Expression): Expression =
    ReplaceExpressions(Project(Seq(Alias(expression, "condition")()), LocalRelation())) match {
      case Project(Seq(Alias(replaced, _)), _) =>
        replaced.transformUp { case With(child, definitions) =>
          val values = definitions.map(d => d.id -> d.child).toMap
          child.transform { case known: CommonExpressionRef => values.getOrElse(known.id, known) }
        }
      case other => throw new IllegalStateException(s"a projection became ${other.nodeName}")
    }

  private def refuse(reason: String): Nothing =
    throw Errors.user("SLACKWATER_INVALID_CHECK", "reason" -> reason)
}

/** One condition. What goes wrong with a row is no reason to say more than that it does not hold:
  * the rows have secrets.
  */
private[bridge] final class Check(
    session: SparkSession,
    condition: Expression,
    schema: StructType
) {
  private val predicate = Predicate.createInterpreted(condition)
  predicate.initialize(0)
  private val stored = Stored.columns(schema)

  def holds(rows: Array[Byte]): Array[Byte] = synchronized {
    Wire.decode(Iterator(rows), stored).map(row => if (holds(row)) 1.toByte else 0.toByte).toArray
  }

  private def holds(row: InternalRow): Boolean =
    try predicate.eval(row)
    catch {
      case NonFatal(_) => false
      // A regular expression may recurse as deep as the text is long.
      case _: StackOverflowError => false
    }
}
