package org.apache.spark.sql.slackwater.scan

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.control.{ControlThrowable, NonFatal}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.slackwater.scan.datasources.Files
import org.apache.spark.sql.slackwater.scan.logical.{BoundParts, BoundScan, IndexOffer, InlineRows}
import org.apache.spark.sql.slackwater.values.{Canonical, Stored}
import org.apache.spark.sql.types.{DataType, StructType}

/** Reads a collection from an index that finds all rows for which a condition may hold.
  *
  * An index that is behind the scan's time is read as far as it is, and what the parts have after
  * that is added. An index that cannot be read is left alone: the parts have everything.
  */
private[slackwater] object IndexScan extends PredicateHelper {

  /** So many rows are taken out of an index; where there are more, a scan costs less. */
  val mostRows = 10000

  /** So many keys are looked up. */
  val mostKeys = 1000

  /** The indexes that keep the collection of the scan, and before which times they are complete. */
  private[scan] def offered(scan: BoundScan): Iterator[(CollectionIndex, IndexOffer)] =
    scan.parts.json.path("indexes").elements.asScala.flatMap { offer =>
      val program = offer.get("program").asText
      CollectionIndexes.find(program).map { index =>
        index -> IndexOffer(program, offer.get("upper").asLong, index.name)
      }
    }

  /** The rows of the scan that can meet the condition, and perhaps others; None: no index has them. */
  def of(condition: Expression, scan: BoundScan): Option[InlineRows] = {
    offered(scan)
      .flatMap { case (index, offer) =>
        found(index, offer, condition, scan)
      }
      .nextOption()
  }

  private def found(
      index: CollectionIndex,
      offer: IndexOffer,
      condition: Expression,
      scan: BoundScan
  ): Option[InlineRows] = for {
    output <- columnsOf(index, scan)
    wanted <- keysIn(condition, index, scan)
    rows <- read(index, wanted, scan, offer.upper, mostRows)
  } yield {
    val project = projection(output)
    val label = s"${scan.label} by index ${index.name}"
    InlineRows(label, scan.output, rows.map(row => project(row).copy()))
  }

  /** Where the columns of the scan are in the index's rows; None: it lacks one. */
  private[scan] def columnsOf(index: CollectionIndex, scan: BoundScan): Option[Seq[Expression]] = {
    val at = index.columns.fields.zipWithIndex.map { case (field, i) => field.name -> i }.toMap
    val found = scan.output.flatMap { wanted =>
      at.get(wanted.name).collect {
        case i if DataType.equalsStructurally(index.columns(i).dataType, wanted.dataType, true) =>
          BoundReference(i, wanted.dataType, nullable = true)
      }
    }
    Option.when(found.size == scan.output.size)(found)
  }

  /** The keys of all rows that can meet the condition, as values of the index's keys. */
  private def keysIn(
      condition: Expression,
      index: CollectionIndex,
      scan: BoundScan
  ): Option[Seq[InternalRow]] = {
    val byName = scan.output.map(a => a.name -> a).toMap
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

  /** The values of `key` for which the condition can hold. */
  private def valuesFor(key: Expression, condition: Expression): Option[Seq[Any]] = {
    def isKey(e: Expression): Boolean = e.deterministic && e.canonicalized == key
    condition match {
      case EqualTo(k, v) if isKey(k) && isValue(v)         => value(v).map(Seq(_).filter(_ != null))
      case EqualTo(v, k) if isKey(k) && isValue(v)         => value(v).map(Seq(_).filter(_ != null))
      case EqualNullSafe(k, v) if isKey(k) && isValue(v)   => value(v).map(Seq(_))
      case EqualNullSafe(v, k) if isKey(k) && isValue(v)   => value(v).map(Seq(_))
      case IsNull(k) if isKey(k)                           => Some(Seq(null))
      case In(k, list) if isKey(k) && list.forall(isValue) =>
        val values = list.map(value)
        Option.when(values.forall(_.isDefined))(values.flatten.filter(_ != null).distinct)
      case k if isKey(k)             => Some(Seq(true))
      case Not(k) if isKey(k)        => Some(Seq(false))
      case InSet(k, set) if isKey(k) => Some(set.iterator.filter(_ != null).toSeq)
      case _                         => None
    }
  }

  /** Code for few rows would take longer to make than these take. */
  private[scan] def projection(expressions: Seq[Expression]): UnsafeProjection =
    InterpretedUnsafeProjection.createProjection(expressions)

  private def isValue(e: Expression): Boolean = e.foldable && e.deterministic

  /** None: it fails, which the statement does when it runs. */
  private def value(e: Expression): Option[Any] =
    try Some(e.eval())
    catch { case NonFatal(_) => None }

  /** The keys of rows that have the values of the index's keys. */
  private[scan] def keyOfValues(index: CollectionIndex): UnsafeProjection =
    projection(index.projection(index.keys.map(_.dataType).zipWithIndex.map { case (t, i) =>
      BoundReference(i, t, nullable = true)
    }))

  /** The keys of rows as the index has them. */
  private[scan] def keyOfRows(index: CollectionIndex): UnsafeProjection = {
    val schema = index.columns
    projection(index.projection(index.keys.map(_.transform { case a: Attribute =>
      BoundReference(schema.fieldIndex(a.name), a.dataType, nullable = true)
    })))
  }

  /** The rows with some of the keys, whose values are `wanted`, at the time of the scan, if they are
    * at most `most`; None also where the index cannot be read at that time.
    */
  private[scan] def read(
      index: CollectionIndex,
      wanted: Seq[InternalRow],
      scan: BoundScan,
      offered: Long,
      most: Int
  ): Option[Seq[UnsafeRow]] = {
    val asOf = scan.identity.asOf
    val keyOf = keyOfValues(index)
    val keys = wanted.map(row => keyOf(row).copy()).distinct
    index
      .reading(asOf) { reader =>
        // It moves on meanwhile: what comes later is not looked at, or it would count twice.
        val reached = reader.upper
        val upper = math.max(reached, offered)
        val later =
          if (upper > asOf) Some(Nil) else updatesFrom(upper, index, keys.toSet, scan.parts, asOf)
        later.flatMap { updates =>
          try {
            val sums = new Sums(most)
            val below = math.min(reached, asOf + 1)
            keys.foreach(reader.lookup(_, below)((row, diff) => sums.add(row, diff)))
            updates.foreach(update => sums.add(update.row, update.diff))
            Some(sums.rows)
          } catch { case TooMany => None }
        }
      }
      .flatten
  }

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
      val canonical = projection(schema.indices.map { i =>
        Canonical(BoundReference(i, schema(i).dataType, nullable = true))
      })
      val keyOf = keyOfRows(index)
      InlineUpdates
        .of(parts, stored)
        .filter(update => update.time >= upper && update.time <= asOf)
        .map(update => update.copy(row = canonical(update.row).copy()))
        .filter(update => keys.contains(keyOf(update.row)))
    }
  }

  /** An index has too many rows for some keys. */
  private object TooMany extends ControlThrowable

  /** Rows, each as often as its diffs sum up to. */
  private final class Sums(most: Int) {
    private val sums = mutable.LinkedHashMap.empty[UnsafeRow, Long]

    def add(row: UnsafeRow, diff: Long): Unit = {
      if (sums.size >= most) throw TooMany
      sums.get(row) match {
        case Some(known) => sums.update(row, known + diff)
        case None        => sums.update(row.copy(), diff)
      }
    }

    def rows: Seq[UnsafeRow] = {
      if (sums.valuesIterator.map(math.max(0L, _)).sum > most) throw TooMany
      Consolidate.repeated(sums.iterator.map { case (row, sum) =>
        InlineUpdate(row, 0L, sum)
      }.toSeq)
    }
  }
}
