package org.apache.spark.sql.slackwater.scan

import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.protocol.Errors
import org.apache.spark.sql.slackwater.scan.datasources.Files
import org.apache.spark.sql.slackwater.scan.logical.{
  BoundParts,
  IndexOffer,
  Indexed,
  IndexedView,
  InlineRows
}
import org.apache.spark.sql.slackwater.values.{Canonical, Stored}
import org.apache.spark.sql.types.{DataType, StructType}

/** Reads a relation from an index that finds all rows for which a condition may hold.
  *
  * An index that is behind the time of the read is read as far as it is, and what the parts have
  * after that is added. An index that cannot be read is left alone, as one on a view that is behind:
  * the parts have everything.
  */
private[slackwater] object IndexScan extends PredicateHelper {

  /** So many rows are taken out of an index; where there are more, a scan costs less. */
  val mostRows = 10000

  /** So many rows of a view, whose query has to be run where there are more. */
  private val mostOfView = 200000

  /** So many keys are looked up. */
  val mostKeys = 1000

  /** The indexes that keep the relation, here or, for an application that has joined, in the leader's
    * driver.
    */
  private[scan] def anywhere(
      session: SparkSession,
      scan: Indexed
  ): Iterator[(CollectionIndex, IndexOffer)] =
    scan.offers.flatMap(offer => indexOf(session, offer, scan).map(_ -> offer))

  /** The index that is offered, here or in the leader's driver; None: nobody can ask it. */
  private[scan] def indexOf(
      session: SparkSession,
      offer: IndexOffer,
      scan: Indexed
  ): Option[CollectionIndex] =
    CollectionIndexes.find(offer.program).orElse(LeaderIndex.of(session, offer, scan))

  /** The rows that can meet the condition, and perhaps others; None: no index has them. */
  def of(session: SparkSession, condition: Expression, scan: Indexed): Option[InlineRows] =
    anywhere(session, scan)
      .flatMap { case (index, offer) =>
        for {
          output <- columnsOf(index, scan)
          wanted <- keysIn(condition, index, scan)
          rows <- read(index, wanted, scan, offer.upper, mostRows)
        } yield inline(index, scan, output, rows)
      }
      .nextOption()

  /** The rows of a view that are wanted, and perhaps others; None: no index has them, or they are too
    * many.
    */
  def all(session: SparkSession, view: IndexedView, wanted: Finishing): Option[LogicalPlan] =
    anywhere(session, view)
      .flatMap { case (index, offer) =>
        for {
          output <- columnsOf(index, view)
          places = view.named.map(_._2.exprId).zip(output).toMap
          found <- attempt(
            index.all(view.asOf, offer.upper, mostOfView, wanted.over(places))
          ) if found.upper > view.asOf
        } yield {
          view.strategy.foreach(_.byIndex())
          found match {
            case rows: FoundRows     => inline(index, view, output, repeated(rows))
            case FoundFile(_, files) =>
              val columns = Stored.columns(index.columns)
              val parts = BoundParts(files, columns, view.hold)
              PartScan.plain(session, label(index, view), view.named.map(_._2), parts)
          }
        }
      }
      .nextOption()

  /** None: it fails, which the statement does when it runs, unless it is cancelled. */
  private[slackwater] def attempt[A](found: => Option[A]): Option[A] =
    try found
    catch { case NonFatal(error) if !Errors.isCancellation(error) => None }

  private def inline(
      index: CollectionIndex,
      scan: Indexed,
      output: Seq[Expression],
      rows: Seq[UnsafeRow]
  ): InlineRows = {
    val project = IndexKeys.projection(output)
    InlineRows(label(index, scan), scan.named.map(_._2), rows.map(row => project(row).copy()))
  }

  private def label(index: CollectionIndex, scan: Indexed): String =
    s"${scan.label} by index ${index.name}"

  /** Where the columns of the relation are in the index's rows; None: it lacks one. */
  private[scan] def columnsOf(index: CollectionIndex, scan: Indexed): Option[Seq[Expression]] = {
    val at = index.columns.fields.zipWithIndex.map { case (field, i) => field.name -> i }.toMap
    val found = scan.named.flatMap { case (name, wanted) =>
      at.get(name).collect {
        case i if DataType.equalsStructurally(index.columns(i).dataType, wanted.dataType, true) =>
          BoundReference(i, wanted.dataType, nullable = true)
      }
    }
    Option.when(found.size == scan.named.size)(found)
  }

  /** The keys of all rows that can meet the condition, as values of the index's keys. */
  private def keysIn(
      condition: Expression,
      index: CollectionIndex,
      scan: Indexed
  ): Option[Seq[InternalRow]] = {
    val byName = scan.named.toMap
    val conjuncts = splitConjunctivePredicates(condition)
    val choices = index.keys.map { key =>
      val own = key.transform { case a: Attribute => byName.getOrElse(a.name, a) }
      conjuncts.iterator.flatMap(valuesFor(own.canonicalized, _)).nextOption()
    }
    val count = choices.map(_.fold(0L)(_.size.toLong)).product
    if (choices.isEmpty || !choices.forall(_.isDefined) || count > mostKeys) None
    else
      Some(
        choices.flatten
          .foldLeft(Seq(Seq.empty[Any])) { (made, values) =>
            for (row <- made; value <- values) yield row :+ value
          }
          .map(values => new GenericInternalRow(values.toArray[Any]))
      )
  }

  /** The values of `key`, in canonical form, for which the condition can hold. */
  private def valuesFor(key: Expression, condition: Expression): Option[Seq[Any]] =
    FixedValues
      .of(condition)
      .find(fixed => fixed.expression.deterministic && fixed.expression.canonicalized == key)
      .flatMap(_.values)

  /** The rows with some of the keys, whose values are `wanted`, at the time of the scan, if they are
    * at most `most`; None also where the index cannot be read at that time.
    */
  private[scan] def read(
      index: CollectionIndex,
      wanted: Seq[InternalRow],
      scan: Indexed,
      offered: Long,
      most: Int
  ): Option[Seq[UnsafeRow]] = {
    val rows = index.found(wanted, scan.asOf, offered, most).flatMap { found =>
      if (found.upper > scan.asOf) Option.when(found.count <= most)(repeated(found))
      else {
        val keyOf = IndexKeys.ofValues(index)
        val keys = wanted.map(row => keyOf(row).copy()).toSet
        scan.stored.flatMap(updatesFrom(found.upper, index, keys, _, scan.asOf)).flatMap {
          updates =>
            val summed = RowSums.within(most) { sums =>
              found.rows.foreach { case (row, count) => sums.add(row, count) }
              updates.foreach(update => sums.add(update.row, update.diff))
              sums.rows
            }
            if (summed.isDefined && updates.nonEmpty) scan.strategy.foreach(_.otherwise())
            summed
        }
      }
    }
    if (rows.isDefined) scan.strategy.foreach(_.byIndex())
    rows
  }

  private def repeated(found: FoundRows): Seq[UnsafeRow] =
    Consolidate.repeated(found.rows.map { case (row, count) => InlineUpdate(row, 0L, count) })

  /** The updates of the parts with these keys from `upper` until `asOf`; None: that takes a job. */
  private def updatesFrom(
      upper: Long,
      index: CollectionIndex,
      keys: Set[UnsafeRow],
      parts: BoundParts,
      asOf: Long
  ): Option[Seq[InlineUpdate]] = {
    // Times up to the since have become one, at which the index may have seen them or not.
    val isKnown = upper > parts.json.get("since").asLong
    val isInline = Files.of(parts.json).forall(_.lastTime.exists(_ < upper))
    val schema = index.columns
    val stored = StructType(schema.map(field => field.copy(name = Stored.column(field.name))))
    val isWhole = stored.forall(field => parts.schema.fieldNames.contains(field.name))
    Option.when(isKnown && isInline && isWhole) {
      val canonical = IndexKeys.projection(schema.indices.map { i =>
        Canonical(BoundReference(i, schema(i).dataType, nullable = true))
      })
      val keyOf = IndexKeys.ofRows(index)
      InlineUpdates
        .of(parts, stored)
        .filter(update => update.time >= upper && update.time <= asOf)
        .map(update => update.copy(row = canonical(update.row).copy()))
        .filter(update => keys.contains(keyOf(update.row)))
    }
  }
}
