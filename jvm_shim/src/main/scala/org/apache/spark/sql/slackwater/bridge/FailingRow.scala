package org.apache.spark.sql.slackwater.bridge

import scala.util.control.NonFatal

import org.apache.spark.SparkThrowable
import org.apache.spark.api.python.PythonException
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.slackwater.plans.{SuspectCalls, SuspectGroups, SuspectRows, Suspects}
import org.apache.spark.sql.slackwater.protocol.Json

/** A row of which a query cannot be computed.
  *
  * @param error
  *   what Spark raises for it
  * @param described
  *   JSON, `{"group": bool, "columns": [{"name", "collection" or null, "read": bool, "text"}]}`:
  *   whether it stands for a group, and its columns as Spark shows them; `read`: the error comes of
  *   what they hold
  */
final class FailingRow private[bridge] (val error: Throwable, val described: String)

/** Looks for rows that fail.
  *
  * @param run
  *   the rows of a plan over slots for collections; None: it cannot be planned
  */
private[bridge] final class FailingRows(run: LogicalPlan => Option[Array[InternalRow]]) {

  /** The first row at the first place that has one, if what is there fails for it. */
  def in(places: Iterator[Suspects]): Option[FailingRow] = places.flatMap(first).nextOption()

  private def first(suspects: Suspects): Option[FailingRow] =
    for {
      row <- firstRow(suspects)
      error <- raised(suspects, row)
    } yield new FailingRow(error, described(suspects, row))

  /** Python that cannot even be asked which rows it fails for names none. */
  private def firstRow(suspects: Suspects): Option[InternalRow] =
    try run(suspects.first(SQLConf.get.sessionLocalTimeZone)).flatMap(_.headOption)
    catch {
      case NonFatal(error) if suspects.isInstanceOf[SuspectCalls] && isOfPython(error) => None
    }

  private def raised(suspects: Suspects, row: InternalRow): Option[Throwable] = suspects match {
    case rows: SuspectRows     => rows.raised(row)
    case calls: SuspectCalls   => Some(calls.raised(row))
    case groups: SuspectGroups =>
      try {
        run(groups.only(row))
        None
      } catch { case NonFatal(error) if isOfValues(error) => Some(error) }
  }

  /** Others, such as that of a job that was cancelled, say nothing of the group. */
  private def isOfValues(error: Throwable): Boolean = causes(error).exists {
    case known: SparkThrowable => Option(known.getSqlState).exists(_.startsWith("22"))
    case _                     => false
  }

  private def isOfPython(error: Throwable): Boolean =
    causes(error).exists(_.isInstanceOf[PythonException])

  private def causes(error: Throwable): Iterator[Throwable] =
    Iterator.iterate(error)(_.getCause).takeWhile(_ != null).take(20)

  private def described(suspects: Suspects, row: InternalRow): String = {
    val json = Json.obj().put("group", suspects.areGroups)
    val columns = json.putArray("columns")
    suspects.shown.zipWithIndex.foreach { case (column, i) =>
      columns
        .addObject()
        .put("name", column.name)
        .put("collection", column.collection.orNull)
        .put("read", column.isRead)
        .put("text", row.getUTF8String(suspects.values.size + i).toString)
    }
    Json.mapper.writeValueAsString(json)
  }
}
