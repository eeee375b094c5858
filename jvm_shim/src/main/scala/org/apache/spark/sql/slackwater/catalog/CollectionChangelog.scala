package org.apache.spark.sql.slackwater.catalog

import org.apache.spark.sql.catalyst.util.DateTimeUtils
import org.apache.spark.sql.connector.catalog.{
  CatalogV2Util,
  Changelog,
  ChangelogContext,
  ChangelogRange,
  Column
}
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.execution.datasources.v2.ChangelogTable
import org.apache.spark.sql.slackwater.protocol.DataErrors
import org.apache.spark.sql.types.{LongType, StringType, StructType, TimestampType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** What has changed in a collection within some times, for Spark's clause CHANGES.
  *
  * Each change is a row that came or went at one time, which is its version. As of a table, Spark
  * never scans it.
  */
final case class CollectionChangelog(table: SlackwaterTable, times: Times) extends Changelog {
  override def name: String = s"the changes of ${table.name}"
  override def columns: Array[Column] =
    CatalogV2Util.structTypeToV2Columns(
      StructType(table.dataSchema ++ CollectionChangelog.OfChange)
    )
  // Each of these asks Spark to match rows by a key that the collection has not got. What would need
  // it is refused by `of`.
  override def containsCarryoverRows: Boolean = false
  override def containsIntermediateChanges: Boolean = false
  override def representsUpdateAsDeleteAndInsert: Boolean = false
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    throw DataErrors.unbound(name)
}

/** The times after `after` and until `until`, in ms; None: until now. */
final case class Times(after: Long, until: Option[Long])

object CollectionChangelog {
  val OfChange: StructType = new StructType()
    .add("_change_type", StringType, nullable = false)
    .add("_commit_version", LongType, nullable = false)
    .add("_commit_timestamp", TimestampType, nullable = false)

  /** The changes behind a table that Spark has made of them. */
  def unapply(table: AnyRef): Option[CollectionChangelog] = table match {
    case ChangelogTable(changes: CollectionChangelog, _, _) => Some(changes)
    case _                                                  => None
  }

  /** Raises SLACKWATER_UNSUPPORTED for what takes rows to have keys, and for columns of these names;
    * SLACKWATER_CHANGES_BOUNDS.
    */
  def of(table: SlackwaterTable, context: ChangelogContext): CollectionChangelog = {
    if (context.computeUpdates) {
      throw DataErrors.unsupported(
        s"computeUpdates for the changes of ${table.name}",
        "A collection has no key: an UPDATE is a delete and an insert of one version."
      )
    }
    if (context.deduplicationMode == ChangelogContext.DeduplicationMode.NET_CHANGES) {
      throw DataErrors.unsupported(
        s"The deduplication mode netChanges for the changes of ${table.name}",
        "Compare its contents at two times by EXCEPT ALL."
      )
    }
    table.dataSchema.names
      .find(column => OfChange.names.exists(_.equalsIgnoreCase(column)))
      .foreach { column =>
        throw DataErrors.unsupported(
          s"CHANGES of ${table.name}, which has a column $column of its own,",
          "Use SUBSCRIBE."
        )
      }
    CollectionChangelog(table, times(table.name, context.range))
  }

  private def times(name: String, range: ChangelogRange): Times = range match {
    case versions: ChangelogRange.VersionRange =>
      val first = SlackwaterTable.version(versions.startingVersion)
      val last = Option(versions.endingVersion.orElse(null)).map(SlackwaterTable.version)
      inOrder(name, first, last)(_.toString)
      Times(
        if (versions.startingBoundInclusive) first - 1 else first,
        last.map(end => if (versions.endingBoundInclusive) end else end - 1)
      )
    case moments: ChangelogRange.TimestampRange =>
      val first = moments.startingTimestamp
      val last = Option(moments.endingTimestamp.orElse(null)).map(_.longValue)
      inOrder(name, first, last)(DateTimeUtils.microsToInstant(_).toString)
      Times(
        if (moments.startingBoundInclusive) before(first) else Math.floorDiv(first, 1000L),
        last.map { end =>
          if (moments.endingBoundInclusive) Math.floorDiv(end, 1000L) else before(end)
        }
      )
    case _ =>
      throw DataErrors.unsupported(
        s"CHANGES of $name without a beginning",
        "Say FROM VERSION or FROM TIMESTAMP."
      )
  }

  /** Raises SLACKWATER_CHANGES_BOUNDS for an end before the beginning. Equal is in order: then there
    * may be no changes, as where somebody goes on from where he was.
    */
  private def inOrder(name: String, first: Long, last: Option[Long])(shown: Long => String): Unit =
    last.filter(_ < first).foreach { end =>
      throw DataErrors.changesBounds(name, shown(first), shown(end))
    }

  /** The last millisecond before a moment in microseconds. */
  private def before(micros: Long): Long = -Math.floorDiv(-micros, 1000L) - 1
}
