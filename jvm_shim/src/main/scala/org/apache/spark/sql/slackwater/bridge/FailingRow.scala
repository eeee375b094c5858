package org.apache.spark.sql.slackwater.bridge

import scala.util.control.NonFatal

import org.apache.spark.SparkThrowable
import org.apache.spark.api.python.PythonException
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.slackwater.plans.{
  ExpressionFailurePlace,
  FailurePlace,
  PythonFailurePlace,
  SumFailurePlace
}
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
  def in(places: Iterator[FailurePlace]): Option[FailingRow] = places.flatMap(first).nextOption()

  private def first(place: FailurePlace): Option[FailingRow] =
    for {
      row <- firstRow(place)
      error <- raised(place, row)
    } yield new FailingRow(error, described(place, row))

  /** Python that cannot even be asked which rows it fails for names none. */
  private def firstRow(place: FailurePlace): Option[InternalRow] =
    try run(place.first(SQLConf.get.sessionLocalTimeZone)).flatMap(_.headOption)
    catch {
      case NonFatal(error) if place.isInstanceOf[PythonFailurePlace] && isOfPython(error) => None
    }

  private def raised(place: FailurePlace, row: InternalRow): Option[Throwable] = place match {
    case rows: ExpressionFailurePlace => rows.raised(row)
    case calls: PythonFailurePlace    => Some(calls.raised(row))
    case groups: SumFailurePlace      =>
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

  private def described(place: FailurePlace, row: InternalRow): String = {
    val json = Json.obj().put("group", place.areGroups)
    val columns = json.putArray("columns")
    place.shown.zipWithIndex.foreach { case (column, i) =>
      columns
        .addObject()
        .put("name", column.name)
        .put("collection", column.collection.orNull)
        .put("read", column.isRead)
        .put("text", row.getUTF8String(place.values.size + i).toString)
    }
    Json.mapper.writeValueAsString(json)
  }
}
