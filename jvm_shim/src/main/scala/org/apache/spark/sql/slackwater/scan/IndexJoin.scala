package org.apache.spark.sql.slackwater.scan

import scala.collection.mutable

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.planning.PhysicalOperation
import org.apache.spark.sql.catalyst.plans._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.scan.logical.{IndexLookupJoin, Indexed, InlineRows}

/** Joins of few rows with a relation that has an index on some of the join's keys. */
private[slackwater] object IndexJoin extends PredicateHelper {

  /** So many rows are looked up. */
  val mostProbes = 10000

  /** So many rows are taken out of the index. */
  val mostRows = 100000

  /** So many numbers of a range are made while it is planned. */
  private val mostCounted = 1000

  /** Plans of unknown length that are so small may have few rows; that is found out when they run. */
  private val smallBytes = BigInt(256 * 1024)

  /** The join by an index; None: there is none for it, or a hint says how to join. */
  def of(session: SparkSession, join: Join): Option[IndexLookupJoin] =
    if (join.hint != JoinHint.NONE || join.condition.isEmpty) None
    else {
      val ways = join.joinType match {
        case Inner | Cross =>
          val both = Seq(
            (join.left, join.right, Inner, true),
            (join.right, join.left, Inner, false)
          )
          both.sortBy(_._1.stats.sizeInBytes)
        case kind @ (LeftOuter | LeftSemi | LeftAnti) => Seq((join.left, join.right, kind, true))
        case RightOuter => Seq((join.right, join.left, LeftOuter, false))
        case _          => Nil
      }
      ways.iterator
        .flatMap { case (probe, side, kind, first) =>
          Option
            .when(few(probe))(side)
            .flatMap(side => lookedUp(session, probe, side, kind, join.condition.get, first))
        }
        .nextOption()
    }

  private def few(plan: LogicalPlan): Boolean = {
    def stats = plan.stats
    plan.maxRows.exists(_ <= mostProbes) || stats.rowCount.exists(_ <= mostProbes) ||
    stats.rowCount.isEmpty && stats.sizeInBytes <= smallBytes
  }

  private def lookedUp(
      session: SparkSession,
      probe: LogicalPlan,
      side: LogicalPlan,
      kind: JoinType,
      condition: Expression,
      probeFirst: Boolean
  ): Option[IndexLookupJoin] = side match {
    case PhysicalOperation(found, filters, scan: Indexed) =>
      val byAlias = AttributeMap(found.collect { case alias: Alias => alias.toAttribute -> alias })
      val over = condition.transform { case a: Attribute =>
        byAlias.get(a).fold[Expression](a)(_.child)
      }
      val filter = filters.reduceOption(And)
      if (!(found ++ filter :+ over).forall(isPlain)) None
      else
        IndexScan
          .anywhere(session, scan)
          .filter { case (_, offer) => scan.canRead(offer.upper) }
          .flatMap { case (index, offer) =>
            for {
              _ <- IndexScan.columnsOf(index, scan)
              keys <- keysOf(index, scan, probe, over)
            } yield IndexLookupJoin(
              counted(probe),
              scan,
              offer,
              kind,
              keys.map(_._1),
              keys.map(_._2),
              filter,
              over,
              found.map { case Alias(child, _) => child; case other => other },
              found.map(_.toAttribute),
              probeFirst
            )
          }
          .nextOption()
    case _ => None
  }

  /** The probe with the numbers of small ranges instead of the ranges: what is made of them is
    * computed by the optimizer, without an RDD, for which Spark reads the code of each function.
    */
  private def counted(probe: LogicalPlan): LogicalPlan = probe.transform {
    case range: Range if range.numElements <= mostCounted =>
      val numbers = (0L until range.numElements.toLong).map(i => range.start + i * range.step)
      InlineRows(
        s"range (${range.start}, ${range.end}, ${range.step})",
        range.output.map(_.asInstanceOf[AttributeReference]),
        numbers.map(InternalRow(_))
      )
  }

  /** For each key of the index what it is compared with, and whether NULL equals NULL there. */
  private def keysOf(
      index: CollectionIndex,
      scan: Indexed,
      probe: LogicalPlan,
      condition: Expression
  ): Option[Seq[(Expression, Boolean)]] = {
    val byName = scan.named.toMap
    val conjuncts = splitConjunctivePredicates(condition).map {
      // So Spark joins texts that are equal by a collation.
      case EqualTo(CollationKey(left), CollationKey(right))       => EqualTo(left, right)
      case EqualNullSafe(CollationKey(left), CollationKey(right)) => EqualNullSafe(left, right)
      case other                                                  => other
    }
    val keys = index.keys.map { key =>
      val own = key.transform { case a: Attribute => byName.getOrElse(a.name, a) }.canonicalized
      def isKey(e: Expression) = e.deterministic && e.canonicalized == own
      def isProbe(e: Expression) = e.references.subsetOf(probe.outputSet)
      conjuncts.collectFirst {
        case EqualTo(k, v) if isKey(k) && isProbe(v)       => (v, false)
        case EqualTo(v, k) if isKey(k) && isProbe(v)       => (v, false)
        case EqualNullSafe(k, v) if isKey(k) && isProbe(v) => (v, true)
        case EqualNullSafe(v, k) if isKey(k) && isProbe(v) => (v, true)
      }
    }
    Option.when(keys.nonEmpty && keys.forall(_.isDefined))(keys.flatten)
  }

  /** Whether it can be computed here, row by row. */
  private def isPlain(expression: Expression): Boolean =
    expression.deterministic && !expression.exists {
      case _: Attribute                                                     => false
      case _: PlanExpression[_] | _: Unevaluable | _: UserDefinedExpression => true
      case _                                                                => false
    }

  /** The rows of the join; None where the index does not have them, or whoever has the index does not
    * give them.
    *
    * @param attributes
    *   of the rows of the probe
    */
  def rows(
      session: SparkSession,
      join: IndexLookupJoin,
      attributes: Seq[Attribute],
      probes: Seq[InternalRow]
  ): Option[Iterator[InternalRow]] = for {
    index <- IndexScan.indexOf(session, join.index, join.scan)
    output <- IndexScan.columnsOf(index, join.scan)
    keys = new ProbeKeys(join, attributes, index)
    wanted = probes.flatMap(keys.values)
    all <- IndexScan.read(index, wanted, join.scan, join.index.upper, mostRows)
  } yield {
    val found = byKey(join, index, output, all)
    new Joined(join, attributes).rows(probes, row => keys.key(row).flatMap(found.get))
  }

  /** The rows of the index that meet the filter, as the scan has them. */
  private def byKey(
      join: IndexLookupJoin,
      index: CollectionIndex,
      output: Seq[Expression],
      rows: Seq[UnsafeRow]
  ): collection.Map[UnsafeRow, mutable.ArrayBuffer[UnsafeRow]] = {
    val keyOf = IndexKeys.ofRows(index)
    val project = IndexKeys.projection(output)
    val meets = join.filter.map(predicate(_, join.rows))
    val found = mutable.HashMap.empty[UnsafeRow, mutable.ArrayBuffer[UnsafeRow]]
    rows.foreach { row =>
      val scanned = project(row)
      if (meets.forall(_.eval(scanned))) {
        val key = keyOf(row)
        val same = found.getOrElse(
          key, {
            val none = mutable.ArrayBuffer.empty[UnsafeRow]
            found.update(key.copy(), none)
            none
          }
        )
        same += scanned.copy()
      }
    }
    found
  }

  private def predicate(condition: Expression, input: Seq[Attribute]): BasePredicate = {
    val made = Predicate.createInterpreted(BindReferences.bindReference(condition, input))
    made.initialize(0)
    made
  }

  /** What is looked up for a row of the probe. */
  private final class ProbeKeys(
      join: IndexLookupJoin,
      attributes: Seq[Attribute],
      index: CollectionIndex
  ) {
    private val expressions = join.keys.map(BindReferences.bindReference(_, attributes))
    private val keyOf = IndexKeys.ofValues(index)

    /** None: it equals nothing. */
    def values(row: InternalRow): Option[InternalRow] = {
      val found = expressions.map(_.eval(row))
      val isNothing = found.zip(join.nullSafe).exists { case (v, safe) => v == null && !safe }
      Option.unless(isNothing)(new GenericInternalRow(found.toArray[Any]))
    }

    /** The key that the index has for it; valid until the next one. */
    def key(row: InternalRow): Option[UnsafeRow] = values(row).map(keyOf(_))
  }

  /** Pairs of rows, as the join gives them. */
  private final class Joined(join: IndexLookupJoin, attributes: Seq[Attribute]) {
    private val meets = predicate(join.condition, attributes ++ join.rows)
    private val columns =
      IndexKeys.projection(BindReferences.bindReferences(join.values, join.rows))
    private val nothing = new GenericInternalRow(join.columns.size)
    private val pair = new JoinedRow()
    private val result = IndexKeys.projection(
      BindReferences.bindReferences(
        if (join.probeFirst) attributes ++ join.columns else join.columns ++ attributes,
        attributes ++ join.columns
      )
    )

    def rows(
        probes: Seq[InternalRow],
        found: InternalRow => Option[collection.Seq[UnsafeRow]]
    ): Iterator[InternalRow] = probes.iterator.flatMap { probe =>
      val matching = found(probe).toSeq.flatten.filter(row => meets.eval(pair(probe, row)))
      join.joinType match {
        case LeftSemi                      => Option.when(matching.nonEmpty)(alone(probe))
        case LeftAnti                      => Option.when(matching.isEmpty)(alone(probe))
        case LeftOuter if matching.isEmpty => Some(result(pair(probe, nothing)).copy())
        case _ => matching.map(row => result(pair(probe, columns(row))).copy())
      }
    }

    private def alone(probe: InternalRow): InternalRow =
      result(pair(probe, InternalRow.empty)).copy()
  }
}
