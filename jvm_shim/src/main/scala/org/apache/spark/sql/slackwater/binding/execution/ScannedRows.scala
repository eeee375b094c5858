package org.apache.spark.sql.slackwater.binding.execution

import java.util.concurrent.ConcurrentHashMap

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{SparkListener, SparkListenerEvent}
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanHelper
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd
import org.apache.spark.sql.slackwater.hold.Holds
import org.apache.spark.sql.slackwater.process.SparkSessions
import org.apache.spark.sql.slackwater.protocol.Json
import org.apache.spark.sql.slackwater.scan.FixedValues
import org.apache.spark.sql.slackwater.scan.datasources.PartIndex

/** What queries have read of collections to find rows by the values of columns.
  *
  * The coordinator is told where that was far more than what was kept, and knows whether an index
  * would have found those rows. Nothing of it fails a statement.
  */
private[execution] object ScannedRows
    extends AdaptiveSparkPlanHelper
    with PredicateHelper
    with Logging {

  /** Fewer rows are read in no time. */
  private val fewest = 100000L

  /** Where more than one of so many is kept, an index is no gain. */
  private val ofWhichOne = 100L

  final case class Scan(relation: String, columns: Seq[String], read: Long, kept: Long)

  /** Executions of which nobody in their thread hears that they end. */
  private val followed = ConcurrentHashMap.newKeySet[Long]()
  private val listening = ConcurrentHashMap.newKeySet[String]()

  /** Tells of a plan that has run, and shows what the coordinator says to it; `later`: the session
    * hears of that with its next statement.
    */
  def tell(plan: SparkPlan, later: Boolean = false): Unit =
    try {
      val found = of(plan)
      if (found.nonEmpty) send(plan.session, found, later)
    } catch { case NonFatal(error) => logDebug("What was scanned could not be told", error) }

  /** Tells of the plan of the execution that this thread is in, once that has ended. The session
    * hears of it with its next statement.
    */
  def follow(session: SparkSession): Unit = Holds.executionOf(session).foreach { id =>
    val context = session.sparkContext
    if (listening.add(context.applicationId)) context.addSparkListener(Ends)
    val _ = followed.add(id)
  }

  private object Ends extends SparkListener {
    override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
      case end: SparkListenerSQLExecutionEnd if followed.remove(end.executionId) =>
        if (end.executionFailure.isEmpty)
          Option(end.qe).foreach(query => tell(query.executedPlan, later = true))
      case _ =>
    }
  }

  private def send(session: SparkSession, scans: Seq[Scan], later: Boolean): Unit = {
    val body = SparkSessions.request(session).put("later", later)
    val entries = body.putArray("scans")
    scans.foreach { scan =>
      val entry = entries.addObject().put("relation", scan.relation)
      entry.set[Nothing]("columns", Json.texts(scan.columns))
      entry.put("rows_read", scan.read).put("rows_kept", scan.kept)
    }
    val _ = SparkSessions.coordinator(session).call("/v1/scanned", body)
  }

  /** The scans of a plan that has run which an index may have spared, one for each relation and the
    * columns whose values the query asks for.
    */
  def of(plan: SparkPlan): Seq[Scan] = {
    val scans = collectWithSubqueries(plan) { case filter: FilterExec => scanOf(filter) }.flatten
    scans
      .groupBy(scan => (scan.relation, scan.columns))
      .map { case ((relation, columns), parts) =>
        Scan(relation, columns, parts.map(_.read).sum, parts.map(_.kept).sum)
      }
      .filter(scan => scan.read >= fewest && scan.kept <= scan.read / ofWhichOne)
      .toSeq
  }

  private def scanOf(filter: FilterExec): Option[Scan] =
    for {
      scan <- below(filter.child)
      parts <- Some(scan.relation.location).collect { case parts: PartIndex => parts }
      conditions = splitConjunctivePredicates(filter.condition)
      columns = conditions.flatMap(columnOf).distinct.sorted
      if columns.nonEmpty && parts.relation.nonEmpty && !conditions.exists(ofRetractions)
    } yield Scan(parts.relation, columns, rowsOf(scan), rowsOf(filter))

  private def below(plan: SparkPlan): Option[FileSourceScanExec] = plan match {
    case scan: FileSourceScanExec => Some(scan)
    case ProjectExec(_, child)    => below(child)
    case through @ (_: InputAdapter | _: ColumnarToRowExec | _: WholeStageCodegenExec) =>
      below(through.children.head)
    case _ => None
  }

  /** Consolidation looks for the rows of few retractions by their hash and their values: those are
    * values that the query does not name.
    */
  private def ofRetractions(condition: Expression): Boolean = condition match {
    case Not(_)    => false
    case condition => condition.exists(_.isInstanceOf[XxHash64])
  }

  private def rowsOf(plan: SparkPlan): Long = plan.metrics("numOutputRows").value

  /** The column for which the condition names values. */
  private def columnOf(condition: Expression): Option[String] =
    FixedValues.of(condition).map(_.expression).collectFirst { case a: Attribute => a.name }
}
