package org.apache.spark.sql.slackwater.plans

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.{AggregateExpression, Count, Min}
import org.apache.spark.sql.catalyst.plans.{Inner, LeftAnti, LeftSingle}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.{
  AGGREGATE,
  EXISTS_SUBQUERY,
  IN_SUBQUERY,
  JOIN,
  LIMIT,
  OFFSET,
  PLAN_EXPRESSION,
  SCALAR_SUBQUERY,
  WINDOW,
  WINDOW_EXPRESSION
}
import org.apache.spark.sql.types.{DataType, MapType, StringType}

/** Applies rules to a plan, and to the plans inside its subquery expressions. */
private[plans] final class WithSubqueries(rules: Rule[LogicalPlan]*) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    rules
      .foldLeft(plan)((done, rule) => rule(done))
      .transformAllExpressionsWithPruning(_.containsPattern(PLAN_EXPRESSION)) {
        case subquery: SubqueryExpression => subquery.withNewPlan(apply(subquery.plan))
      }
}

/** LIMIT stands right above the ORDER BY that it is about.
  *
  * Spark looks for it there when it takes a correlated LIMIT out of a subquery, and a column that is
  * ordered by and not selected has put a projection in between.
  */
private[plans] object LimitSorted extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformUpWithPruning(
    _.containsAnyPattern(LIMIT, OFFSET)
  ) {
    case limit: UnaryNode if isLimit(limit) =>
      limit.child match {
        case project: Project if project.deterministic && isSorted(project.child) =>
          project.withNewChildren(Seq(limit.withNewChildren(Seq(project.child))))
        case _ => limit
      }
  }

  private def isLimit(plan: LogicalPlan): Boolean = plan match {
    case _: GlobalLimit | _: LocalLimit | _: Offset => true
    case _                                          => false
  }

  private def isSorted(plan: LogicalPlan): Boolean = plan match {
    case sort: Sort                         => sort.global
    case project: Project                   => isSorted(project.child)
    case limit: UnaryNode if isLimit(limit) => isSorted(limit.child)
    case _                                  => false
  }
}

/** Normalises the plans inside subquery expressions; what they are ordered by has no meaning. */
private[plans] final class NormaliseSubqueries(normalise: LogicalPlan => LogicalPlan)
    extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformAllExpressionsWithPruning(_.containsPattern(PLAN_EXPRESSION)) {
      case subquery: SubqueryExpression =>
        subquery.withNewPlan(unordered(normalise(Subquery.fromExpression(subquery))))
    }

  private def unordered(plan: LogicalPlan): LogicalPlan = plan match {
    case Subquery(child, _)           => unordered(child)
    case sort: Sort                   => sort.child
    case Project(columns, sort: Sort) => Project(columns, sort.child)
    case other                        => other
  }
}

/** `EXISTS (q)` that refers to nothing outside is `(SELECT count(*) > 0 FROM q)`, whose value stays
  * while the number changes.
  *
  * Spark takes one row of it, and which one that is would have to be maintained.
  */
private[plans] object CountExists extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformAllExpressionsWithPruning(_.containsPattern(EXISTS_SUBQUERY)) {
      case exists: Exists if !exists.isCorrelated =>
        val rows = Alias(Count(Literal(1)).toAggregateExpression(), "rows")()
        val counted = Aggregate(Nil, Seq(rows), exists.plan)
        val some = Alias(GreaterThan(rows.toAttribute, Literal(0L)), "exists")()
        ScalarSubquery(Project(Seq(some), counted), exprId = exists.exprId)
    }
}

/** `NOT IN` over columns that may be NULL, as an anti join by the values and two questions about the
  * subquery alone: whether it has a row, and whether it has NULL.
  *
  * As one join it would have no equal columns, and each change of the subquery would be compared
  * with the whole other side.
  */
private[plans] object SplitNullAware extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformUpWithPruning(_.containsPattern(JOIN)) {
      case join @ Join(left, right, LeftAnti, Some(Or(equal: EqualTo, IsNull(same))), _)
          if equal == same =>
        sides(equal, left, right).fold[LogicalPlan](join) { case (value, found) =>
          split(left, right, value, found)
        }
    }

  private def sides(
      equal: EqualTo,
      left: LogicalPlan,
      right: LogicalPlan
  ): Option[(Expression, Expression)] = {
    def isOf(side: LogicalPlan, e: Expression): Boolean = e.references.subsetOf(side.outputSet)
    if (isOf(left, equal.left) && isOf(right, equal.right)) Some(equal.left -> equal.right)
    else if (isOf(left, equal.right) && isOf(right, equal.left)) Some(equal.right -> equal.left)
    else None
  }

  private def split(
      left: LogicalPlan,
      right: LogicalPlan,
      value: Expression,
      found: Expression
  ): LogicalPlan = {
    val rows = Alias(Count(Literal(1)).toAggregateExpression(), "rows")()
    val values = Alias(Count(found).toAggregateExpression(), "values")()
    val counted = Aggregate(Nil, Seq(rows, values), right)
    val isEmpty = Alias(EqualTo(rows.toAttribute, Literal(0L)), "is_empty")()
    val hasNull = Alias(GreaterThan(rows.toAttribute, values.toAttribute), "has_null")()
    val asked = Project(Seq(isEmpty, hasNull), counted)
    val others = Join(left, right, LeftAnti, Some(EqualTo(value, found)), JoinHint.NONE)
    val kept =
      Or(isEmpty.toAttribute, And(IsNotNull(value), Not(hasNull.toAttribute)))
    Project(left.output, Join(others, asked, Inner, Some(kept), JoinHint.NONE))
  }
}

/** Scalar subqueries beside aggregates are asked for above them, where there is a row for each group
  * to join them with.
  */
private[plans] object AskAboveAggregates extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformUpWithPruning(_.containsAllPatterns(AGGREGATE, SCALAR_SUBQUERY)) {
      case whole: Aggregate if whole.aggregateExpressions.exists(_.exists(isBeside)) =>
        val columns = mutable.LinkedHashMap.empty[Expression, NamedExpression]
        def column(e: Expression): Attribute = columns
          .getOrElseUpdate(
            e.canonicalized,
            e match {
              case named: NamedExpression => named
              case other                  => Alias(other, "value")()
            }
          )
          .toAttribute
        whole.groupingExpressions.foreach(column)
        val results = whole.aggregateExpressions.map(_.transformDown {
          case e if columns.contains(e.canonicalized) => column(e)
          case call: AggregateExpression              => column(call)
        }.asInstanceOf[NamedExpression])
        val below = Aggregate(whole.groupingExpressions, columns.values.toSeq, whole.child)
        Project(results, below)
    }

  private def isBeside(expression: Expression): Boolean = expression match {
    case subquery: ScalarSubquery => !subquery.isCorrelated
    case _                        => false
  }
}

/** A scalar subquery that refers to nothing outside becomes a join with its only row.
  *
  * Where it is not sure to have one row, it is made to: NULL for no row, a failure for several.
  * LeftSingle, which does the same, is for what has no least value.
  */
private[plans] object JoinScalarSubqueries extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformUpWithPruning(_.containsPattern(SCALAR_SUBQUERY)) {
      case node if node.children.nonEmpty && node.expressions.exists(_.exists(isAlone)) =>
        val found = new Found
        val replaced = node.transformExpressions {
          case s: ScalarSubquery if isAlone(s) => found(s)
        }
        val joined = found.plans.foldLeft(replaced.children.head)(join)
        val whole = replaced.withNewChildren(joined +: replaced.children.tail)
        if (whole.output.map(_.exprId) == node.output.map(_.exprId)) whole
        else Project(node.output, whole)
    }

  private def isAlone(expression: Expression): Boolean = expression match {
    case subquery: ScalarSubquery => !subquery.isCorrelated
    case _                        => false
  }

  /** The subqueries of a node: those with the same plan are one.
    *
    * Pushing a filter down may have copied one into another node, with its ids.
    */
  private final class Found {
    private val values = mutable.LinkedHashMap.empty[LogicalPlan, LogicalPlan]
    def apply(subquery: ScalarSubquery): Attribute = {
      val plan =
        values.getOrElseUpdate(subquery.plan.canonicalized, OnlyRow(FreshExprIds(subquery.plan)))
      if (hasOneRow(plan)) plan.output.head else plan.output.head.withNullability(true)
    }
    def plans: Iterable[LogicalPlan] = values.values
  }

  private def join(left: LogicalPlan, right: LogicalPlan): LogicalPlan =
    Join(left, right, if (hasOneRow(right)) Inner else LeftSingle, None, JoinHint.NONE)

  private[plans] def hasOneRow(plan: LogicalPlan): Boolean = plan match {
    case aggregate: Aggregate => aggregate.groupingExpressions.isEmpty
    case project: Project     => hasOneRow(project.child)
    case _: OneRowRelation    => true
    case _                    => false
  }
}

/** The value of a scalar subquery as the only row of a plan: NULL if the subquery has none, Spark's
  * error if it has several, whoever asks for it.
  */
private[plans] object OnlyRow {
  private val several = "SCALAR_SUBQUERY_TOO_MANY_ROWS"
  private val nothing =
    Literal.create(Map.empty[String, String], MapType(StringType, StringType))

  /** Spark's error, in the place of a value of the type. */
  private[plans] def failure(dataType: DataType): Expression =
    RaiseError(Literal(several), nothing, dataType)

  def apply(plan: LogicalPlan): LogicalPlan = plan.output match {
    case Seq(value)
        if !JoinScalarSubqueries.hasOneRow(plan) && RowOrdering.isOrderable(value.dataType) =>
      val rows = Alias(Count(Literal(1)).toAggregateExpression(), "rows")()
      val least = Alias(Min(value).toAggregateExpression(), value.name)()
      val only = If(
        GreaterThan(rows.toAttribute, Literal(1L)),
        failure(value.dataType),
        least.toAttribute
      )
      Project(Seq(Alias(only, value.name)()), Aggregate(Nil, Seq(rows, least), plan))
    case _ => plan
  }
}

/** `NOT IN` in the condition of a join is `NOT EXISTS` of what is equal, or may be.
  *
  * Spark asks there whether an equal value exists, and does not see that NULL may be one.
  */
private[plans] object NullAwareInJoins extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformWithPruning(_.containsAllPatterns(JOIN, IN_SUBQUERY)) { case join: Join =>
      join.copy(condition = join.condition.map(_.transformDown {
        case Not(InSubquery(values, query: ListQuery)) if values.exists(_.references.nonEmpty) =>
          Not(possible(values, query))
      }))
    }

  private def possible(values: Seq[Expression], query: ListQuery): Exists = {
    val columns = query.plan.output.map(column => Alias(column, column.name)())
    val renamed = AttributeMap(query.plan.output.zip(columns.map(_.toAttribute)))
    val same = values.zip(columns).map { case (value, column) =>
      EqualTo(value, column.toAttribute)
    }
    val correlated = query.joinCond.map(_.transform { case a: Attribute =>
      renamed.getOrElse(a, a)
    })
    Exists(
      Project(columns, query.plan),
      outerAttrs = values.flatMap(_.references) ++ query.outerAttrs,
      exprId = query.exprId,
      joinCond = same.map(equal => Or(equal, IsNull(equal))) ++ correlated
    )
  }
}

/** What is no call of a window function stands beside the window: Spark lists columns of the outer
  * query among the calls when it takes a window out of a LATERAL subquery, and knows `count(NULL)`
  * to be 0.
  */
private[plans] object PassBesideWindows extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    plan.transformUpWithPruning(_.containsPattern(WINDOW)) {
      case window: Window if !window.windowExpressions.forall(isCall) =>
        val calls = window.windowExpressions.filter(isCall)
        val columns = window.windowExpressions.map(e => if (isCall(e)) e.toAttribute else e)
        val below = if (calls.isEmpty) window.child else window.copy(windowExpressions = calls)
        Project(window.child.output ++ columns, below)
    }

  private def isCall(expression: NamedExpression): Boolean =
    expression.containsPattern(WINDOW_EXPRESSION)
}
