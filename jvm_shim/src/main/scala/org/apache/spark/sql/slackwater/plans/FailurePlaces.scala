package org.apache.spark.sql.slackwater.plans

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.catalyst.planning.PhysicalAggregation
import org.apache.spark.sql.catalyst.plans.{Inner, LeftExistence}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.slackwater.binding.MzNow
import org.apache.spark.sql.slackwater.plans.logical.{CollectionSlot, JoinCondition}
import org.apache.spark.sql.slackwater.values.Totality
import org.apache.spark.sql.types.{DoubleType, FloatType, NumericType}

/** Where a view's query may fail, from its inputs up, left before right: what is below a place can be
  * computed if nothing fails there.
  *
  * Of Python only what is called for each row is among it, and nothing of a recursion.
  *
  * @param collections
  *   the columns of those that the view reads, by their ids
  */
private[slackwater] final class FailurePlaces(
    view: AnalyzedView,
    collections: Map[String, Seq[Attribute]],
    asOf: Long
) {

  /** Over slots for the collections. */
  def of(root: Int): Iterator[FailurePlace] = {
    val seen = mutable.HashSet.empty[LogicalPlan]
    places(MzNow.at(view.nodes(root), asOf))
      .filter(place => seen.add(place.canonicalized))
      .flatMap(at)
  }

  private def places(plan: LogicalPlan): Iterator[LogicalPlan] = plan match {
    case _: UnionLoop => Iterator.empty
    case _            => plan.children.iterator.flatMap(places) ++ Iterator(plan)
  }

  private def at(place: LogicalPlan): Iterator[FailurePlace] = place match {
    case p: Project   => rows(p.child, p.projectList) ++ calls(p)
    case f: Filter    => rows(f.child, Seq(f.condition))
    case e: Expand    => rows(e.child, e.projections.flatten)
    case g: Generate  => rows(g.child, Seq(g.generator))
    case s: Sort      => rows(s.child, s.order)
    case w: Window    => rows(w.child, w.partitionSpec ++ w.orderSpec ++ arguments(w))
    case j: Join      => joined(j)
    case a: Aggregate => aggregated(a)
    case _            => Iterator.empty
  }

  private def rows(below: LogicalPlan, computed: Seq[Expression]): Iterator[FailurePlace] =
    mayFail(below, computed).iterator.map { expressions =>
      val whole = withOrigins(below)
      val columns = shown(whole, AttributeSet(expressions))
      ExpressionFailurePlace(whole.plan, expressions, columns, areGroups = false)
    }

  /** Python is called by projections alone (`CallPythonInProjections`): the arguments of a call, which
    * may be calls, before it.
    */
  private def calls(project: Project): Iterator[FailurePlace] = {
    val captured = mutable.ArrayBuffer.empty[PythonUDF]
    project.projectList.foreach(_.foreachUp {
      case call: PythonUDF => captured ++= PythonErrorCapture.of(call)
      case _               =>
    })
    lazy val whole = withOrigins(project.child)
    captured.iterator.map(call =>
      PythonFailurePlace(whole.plan, call, shown(whole, call.references))
    )
  }

  private def mayFail(below: LogicalPlan, computed: Seq[Expression]): Option[Seq[Expression]] =
    Some(computed.map(plain).filter { e =>
      isComputable(e) && Totality.mayRaise(e) && e.references.subsetOf(below.outputSet)
    }).filter(_.nonEmpty)

  private def plain(expression: Expression): Expression = expression match {
    case alias: Alias     => plain(alias.child)
    case order: SortOrder => plain(order.child)
    case other            => other
  }

  private def isComputable(expression: Expression): Boolean =
    expression.deterministic && !expression.exists {
      case _: PythonFuncExpression | _: PythonUDTF | _: PlanExpression[_] | _: OuterReference =>
        true
      case _ => false
    }

  private def arguments(window: Window): Seq[Expression] = window.windowExpressions.flatMap {
    _.collect { case WindowExpression(function, _) => function }.flatMap {
      case call: AggregateExpression => taken(call)
      case other                     => other.children
    }
  }

  /** What an aggregate computes of a row. */
  private def taken(call: AggregateExpression): Seq[Expression] = {
    val values = call.aggregateFunction.children.map(plain)
    call.filter.fold(values) { filter =>
      filter +: values.map(value => If(filter, value, Literal(null, value.dataType)))
    }
  }

  private def joined(join: Join): Iterator[FailurePlace] = {
    val condition = JoinCondition.of(join)
    val same = condition.keys.map { key =>
      if (key.nullSafe) EqualNullSafe(key.left, key.right) else EqualTo(key.left, key.right)
    }
    val pairs = Join(join.left, join.right, Inner, same.reduceOption(And), JoinHint.NONE)
    rows(join.left, condition.keys.map(_.left)) ++ rows(join.right, condition.keys.map(_.right)) ++
      rows(pairs, condition.residual.reduceOption(And).toSeq)
  }

  private def aggregated(aggregate: Aggregate): Iterator[FailurePlace] = aggregate match {
    case PhysicalAggregation(groups, computed, made, child) =>
      val calls = computed.collect { case call: AggregateExpression => call }
      val keys = groups.map(plain)
      val values = calls.map(call => Alias(call, call.resultAttribute.name)(call.resultId))
      val grouped = Aggregate(keys, groups ++ values, child)
      rows(child, keys ++ calls.flatMap(taken)) ++ sums(groups, keys, calls, grouped) ++
        ends(groups, keys, calls, child) ++ results(grouped, groups, made)
    case _ => Iterator.empty
  }

  private def results(
      grouped: Aggregate,
      groups: Seq[NamedExpression],
      made: Seq[Expression]
  ): Iterator[FailurePlace] = mayFail(grouped, made).iterator.map { expressions =>
    val wanted = AttributeSet(expressions) ++ AttributeSet(groups.map(_.toAttribute))
    val columns = named(grouped.output.filter(wanted.contains)).map(computed(_, isRead = true))
    ExpressionFailurePlace(grouped, expressions, columns, areGroups = true)
  }

  /** Groups whose value an aggregate may fail to make of its buffer. */
  private def ends(
      groups: Seq[NamedExpression],
      keys: Seq[Expression],
      calls: Seq[AggregateExpression],
      child: LogicalPlan
  ): Iterator[FailurePlace] = {
    val (buffers, values) = calls.flatMap { call =>
      AggregateBufferAsStruct.of(call.aggregateFunction).filter(g => Totality.mayRaise(g.end)).map {
        function =>
          val own = call.copy(aggregateFunction = function, resultId = NamedExpression.newExprId)
          val state = Alias(own, "value")()
          (state, function.endOf(state.toAttribute))
      }
    }.unzip
    val columns = groups.map(_.toAttribute)
    Option
      .when(buffers.nonEmpty) {
        val rows = Aggregate(keys, groups ++ buffers, child)
        ExpressionFailurePlace(
          rows,
          values,
          columns.map(computed(_, isRead = true)),
          areGroups = true
        )
      }
      .iterator
  }

  private def sums(
      groups: Seq[NamedExpression],
      keys: Seq[Expression],
      calls: Seq[AggregateExpression],
      grouped: Aggregate
  ): Iterator[FailurePlace] = {
    val beyond = for {
      call <- calls
      tried <- unlessBeyond(call.aggregateFunction)
    } yield {
      def instead(function: AggregateFunction): Expression =
        call.copy(aggregateFunction = function, resultId = NamedExpression.newExprId)
      val some = GreaterThan(instead(Count(call.aggregateFunction.children)), Literal(0L))
      Alias(And(IsNull(instead(tried)), some), "beyond")()
    }
    beyond.map(_.toAttribute).reduceOption[Expression](Or).iterator.map { fails =>
      val columns = groups.map(_.toAttribute)
      val rows = Aggregate(keys, groups ++ beyond, grouped.child)
      SumFailurePlace(rows, fails, columns, columns.map(computed(_, isRead = true)), grouped)
    }
  }

  /** The function that is NULL where `function` raises. */
  private def unlessBeyond(function: AggregateFunction): Option[AggregateFunction] = {
    def raises(mode: EvalMode.Value): Boolean = function.dataType match {
      case FloatType | DoubleType => false
      case _: NumericType         => mode == EvalMode.ANSI
      case _                      => true
    }
    function match {
      case sum: Sum if raises(sum.evalContext.evalMode) =>
        Some(sum.copy(evalContext = sum.evalContext.copy(evalMode = EvalMode.TRY)))
      case average: Average if raises(average.evalMode) =>
        Some(average.copy(evalMode = EvalMode.TRY))
      case _ => None
    }
  }

  private def withOrigins(plan: LogicalPlan): WithOrigins = plan match {
    case slot: CollectionSlot => whole(slot)
    case project: Project     =>
      val below = withOrigins(project.child)
      val further = below.origins.map(_.column).filterNot(project.outputSet.contains)
      below.copy(plan = Project(project.projectList ++ further, below.plan))
    case filter: Filter =>
      val below = withOrigins(filter.child)
      below.copy(plan = filter.copy(child = below.plan))
    case sort: Sort =>
      val below = withOrigins(sort.child)
      below.copy(plan = sort.copy(child = below.plan))
    case join: Join =>
      val left = withOrigins(join.left)
      val right = join.joinType match {
        case LeftExistence(_) => WithOrigins(join.right, Nil)
        case _                => withOrigins(join.right)
      }
      val joined = join.copy(left = left.plan, right = right.plan)
      val columns = joined.output.map(a => a.exprId -> a).toMap
      val origins = left.origins ++ right.origins
      WithOrigins(joined, origins.map(o => o.copy(column = columns(o.column.exprId))))
    case other => WithOrigins(other, Nil)
  }

  private def whole(slot: CollectionSlot): WithOrigins = {
    val known = slot.fields.zip(slot.output).toMap
    val columns = collections(slot.id).map { column =>
      known.getOrElse(column.name, AttributeReference(column.name, column.dataType)())
    }
    WithOrigins(
      CollectionSlot(slot.id, columns.map(_.name), columns),
      columns.map(Origin(_, slot.id))
    )
  }

  /** Where nothing is a column of a collection, what is there is shown, each name once. */
  private def shown(rows: WithOrigins, read: AttributeSet): Seq[ShownColumn] = {
    val ofCollections = rows.origins.map { case Origin(column, collection) =>
      ShownColumn(column, column.name, Some(collection), read.contains(column))
    }
    val known = AttributeSet(rows.origins.map(_.column))
    val others =
      named(rows.plan.output).filterNot(known.contains).map(a => computed(a, read.contains(a)))
    val (ofError, further) = others.partition(_.isRead)
    val names = ofError.map(_.name).toSet
    if (ofCollections.nonEmpty) ofCollections ++ ofError
    else {
      val once = further.filterNot(c => names(c.name)).distinctBy(_.name).map(_.column.exprId).toSet
      others.filter(c => c.isRead || once(c.column.exprId))
    }
  }

  /** Those that have a name of people's or of Spark's: what parts of aggregates are called says
    * nothing.
    */
  private def named(columns: Seq[Attribute]): Seq[Attribute] =
    columns.filterNot(column => Set("value", "bucket")(column.name))

  private def computed(column: Attribute, isRead: Boolean): ShownColumn =
    ShownColumn(column, HandleRegistry.stable(column.name), None, isRead)
}

/** A column of a collection. */
private[plans] final case class Origin(column: Attribute, collection: String)

/** A plan with all columns of the collections, as far up as a row is made of one row of each. */
private[plans] final case class WithOrigins(plan: LogicalPlan, origins: Seq[Origin])
