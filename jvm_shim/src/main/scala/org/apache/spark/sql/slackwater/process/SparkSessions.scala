package org.apache.spark.sql.slackwater.process

import java.lang.ref.Cleaner

import scala.util.Try

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.CurrentUserContext
import org.apache.spark.sql.classic
import org.apache.spark.sql.connector.catalog.CatalogManager
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.slackwater.protocol.{Coordinator, DataErrors, Json}

/** What the hooks ask of a Spark session. */
object SparkSessions {
  val catalogName = "slackwater"

  private val enabledKey = "spark.slackwater.enabled"

  /** Set where nobody has configured the catalog, and the jar alone brings it. */
  private[slackwater] val impliedKey = "spark.slackwater.implied"

  private val internalKey = "spark.slackwater.internal"
  private val cleaner = Cleaner.create()

  /** The session that runs on this thread. */
  def active: SparkSession = SparkSession.active

  def isEnabled(session: SparkSession): Boolean = isEnabled(conf(session))

  /** As above, for rules that have Spark's settings at hand and no session. */
  def isEnabled(conf: SQLConf): Boolean = conf.getConfString(enabledKey, "true").toBoolean

  /** Whether the session is the coordinator's own, or a stream's. */
  private[slackwater] def isInternal(session: SparkSession): Boolean =
    conf(session).getConfString(internalKey, "false").toBoolean

  /** Makes the session one whose reads are no statements of a user. */
  private[slackwater] def makeInternal(session: SparkSession): Unit =
    session.conf.set(internalKey, "true")

  /** Whether somebody has configured Slackwater for the application: more than the jar is there. */
  def isConfigured(session: SparkSession): Boolean = {
    val settings = of(session).sparkContext.getConf
    !settings.contains(impliedKey) ||
    settings.getAllWithPrefix("spark.slackwater.").exists { case (name, _) =>
      !Set(impliedKey, enabledKey)(s"spark.slackwater.$name")
    }
  }

  /** The names of the catalogs that SHOW CATALOGS would show if all of ours had been used. */
  def catalogs(session: SparkSession): Seq[String] =
    (manager(session).listCatalogs(None) :+ catalogName).distinct.sorted

  /** Whether a name without a catalog means one of ours. */
  def inSlackwater(session: SparkSession): Boolean =
    Try(manager(session).currentCatalog.name == catalogName).getOrElse(false)

  /** Spark fails for some names that no catalog can have, and for one that cannot be made. */
  def isCatalog(session: SparkSession, name: String): Boolean =
    Try(manager(session).isCatalogRegistered(name)).getOrElse(false)

  /** The session's name in the protocol. */
  def id(session: SparkSession): String = {
    val classicSession = of(session)
    s"${classicSession.sparkContext.applicationId}/${classicSession.sessionUUID}"
  }

  /** Whether the session has had to do with a coordinator: if not, it is in no transaction block. */
  def hasCalled(session: SparkSession): Boolean = CoordinatorHandle.isKnown(id(session))

  /** The coordinator of the session's environment. Nothing is started before its first call.
    *
    * Raises SLACKWATER_UNSUPPORTED where Slackwater is switched off.
    */
  def coordinator(session: SparkSession): Coordinator = {
    if (!isEnabled(session)) {
      throw DataErrors.unsupported(
        s"The catalog $catalogName while $enabledKey is false",
        s"Set $enabledKey to true."
      )
    }
    val handle = CoordinatorHandle.of(of(session).sparkContext)
    watch(of(session), handle)
    handle
  }

  /** Where the session resolves names, and its user. */
  def context(session: SparkSession): ObjectNode = {
    val manager = this.manager(session)
    val context = Json.obj()
    context.put("catalog", manager.currentCatalog.name)
    context.set[ObjectNode]("namespace", Json.texts(manager.currentNamespace))
    context.put("user", CurrentUserContext.getCurrentUser)
  }

  /** A request with the session's id and where it resolves names. */
  def request(session: SparkSession): ObjectNode = {
    val body = Json.obj()
    body.put("session", id(session))
    body.set[ObjectNode]("context", context(session))
    body.put("application", of(session).sparkContext.appName)
    // Its statement waits for this call, and was admitted already.
    if (isInternal(session)) body.put("internal", true)
    body
  }

  /** A request of a statement that may define something or read: with the session's settings. */
  def statement(session: SparkSession): ObjectNode = {
    val body = request(session)
    body
      .withObject("/context")
      .set[ObjectNode]("settings", Json.textMap(ResultSettings.of(session)))
    body
  }

  private def of(session: SparkSession): classic.SparkSession =
    session.asInstanceOf[classic.SparkSession]

  private def conf(session: SparkSession): SQLConf = of(session).sessionState.conf

  private def manager(session: SparkSession): CatalogManager =
    of(session).sessionState.catalogManager

  /** Spark tells nobody that a session has ended: it has when nothing refers to it any more. */
  private def watch(session: classic.SparkSession, handle: CoordinatorHandle): Unit = {
    val name = id(session)
    if (handle.openSession(name)) cleaner.register(session, new SessionEnd(name, handle))
  }

  /** Must not refer to the session, or it would never end. */
  private final class SessionEnd(name: String, handle: CoordinatorHandle) extends Runnable {
    override def run(): Unit = handle.closeSession(name)
  }
}
