package org.apache.spark.sql.slackwater.plans

import com.fasterxml.jackson.databind.node.{ArrayNode, ObjectNode}

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
import org.apache.spark.sql.catalyst.planning.PhysicalAggregation
import org.apache.spark.sql.catalyst.plans._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.slackwater.plans.expressions.OrderedAggregate
import org.apache.spark.sql.slackwater.plans.logical.{CollectionSlot, JoinCondition, RowLimit}
import org.apache.spark.sql.slackwater.plans.optimizer.SessionWindows
import org.apache.spark.sql.slackwater.protocol.Json

/** An operator as JSON, without its inputs, and the columns that it gives. */
private[plans] final case class Encoded(json: ObjectNode, out: Seq[Int])

/** What each operator says of itself; its expressions become handles, in a fixed order. */
private[plans] final class OperatorJson(registry: HandleRegistry) {

  def source(slot: CollectionSlot): Encoded = {
    val json = op("source").put("collection", slot.id)
    json.set[ObjectNode]("fields", Json.texts(slot.fields))
    Encoded(json, slot.output.map(registry.column))
  }

  def constant(leaf: LogicalPlan, rows: Constant): Encoded = Encoded(
    op("constant").put("rows", rows.count).put("digest", rows.digest),
    leaf.output.map(registry.column)
  )

  def other(plan: LogicalPlan, reason: String): Encoded = Encoded(
    op("other").put("name", plan.nodeName).put("reason", reason),
    plan.output.map(registry.column)
  )

  /** The same rows for a second reader: a projection that gives all columns anew. */
  def again(first: Input): Encoded = {
    val json = op("project")
    json.set[ObjectNode]("exprs", expressions(first.plan.output, first.scope))
    Encoded(json, first.plan.output.map(registry.column))
  }

  def project(plan: Project, in: Input): Encoded = {
    val json = op("project")
    json.set[ObjectNode]("exprs", expressions(plan.projectList, in.scope))
    Encoded(json, plan.output.map(registry.column))
  }

  def filter(plan: Filter, in: Input): Encoded = {
    val json = op("filter")
    val conjuncts = JoinCondition.conjuncts(plan.condition)
    json.set[ObjectNode]("conjuncts", expressions(conjuncts, in.scope))
    Encoded(json, in.out)
  }

  /** `bounds` are all that the filter asks. */
  def temporal(bounds: Seq[NowBound], in: Input): Encoded = {
    val json = op("temporal")
    val listed = json.putArray("bounds")
    bounds.foreach { bound =>
      listed
        .addObject()
        .put("comparison", bound.comparison)
        .put("handle", registry.handle(bound.value, in.scope))
    }
    Encoded(json, in.out)
  }

  def join(plan: Join, left: Input, right: Input): Encoded = {
    val scope = left.scope ++ right.scope
    val condition = JoinCondition.of(plan)
    val json = op("join").put("kind", kind(plan.joinType))
    val keys = json.putArray("keys")
    condition.keys.foreach { key =>
      keys
        .addObject()
        .put("left", registry.handle(key.left, scope))
        .put("right", registry.handle(key.right, scope))
        .put("null_safe", key.nullSafe)
    }
    json.set[ObjectNode]("residual", expressions(condition.residual, scope))
    val nullAware = json.putArray("null_aware")
    condition.nullAware.foreach { pair =>
      nullAware
        .addObject()
        .put("condition", registry.handle(pair.condition, scope))
        .put("left", registry.handle(pair.left, scope))
        .put("right", registry.handle(pair.right, scope))
    }
    val exists = plan.joinType match {
      case ExistenceJoin(attribute) => Some(registry.column(attribute))
      case _                        => None
    }
    exists.fold(json.putNull("exists"))(json.put("exists", _))
    val out = plan.joinType match {
      case LeftSemi | LeftAnti => left.out
      case ExistenceJoin(_)    => left.out ++ exists
      case _                   => left.out ++ right.out
    }
    Encoded(json, out)
  }

  private def kind(joinType: JoinType): String = joinType match {
    case Inner            => "inner"
    case Cross            => "cross"
    case LeftOuter        => "left_outer"
    case RightOuter       => "right_outer"
    case FullOuter        => "full_outer"
    case LeftSemi         => "left_semi"
    case LeftAnti         => "left_anti"
    case LeftSingle       => "left_single"
    case ExistenceJoin(_) => "existence"
    case unknown          => throw new IllegalStateException(s"a join of kind ${unknown.sql}")
  }

  /** Groups and aggregates have columns of their own, over which the results are computed. */
  def aggregate(plan: Aggregate, in: Input): Encoded = {
    val (groups, aggregates, results) = PhysicalAggregation.unapply(plan) match {
      case Some((groups, aggregates, results, _)) =>
        (groups, aggregates.map(_.asInstanceOf[AggregateExpression]), results)
      case None => throw new IllegalStateException("Spark takes apart every aggregate")
    }
    val json = op("aggregate")
    val listed = json.putArray("groups")
    val groupColumns = groups.map { group =>
      val handle = registry.handle(group, in.scope)
      val column = registry.column(group.toAttribute)
      listed.addObject().put("handle", handle).put("column", column)
      column
    }
    val computed = json.putArray("aggregates")
    val aggregateColumns = aggregates.map(aggregateCall(computed, _, in.scope))
    val scope = Scope.of(groups.map(_.toAttribute), groupColumns) ++
      Scope.of(aggregates.map(_.resultAttribute), aggregateColumns)
    json.set[ObjectNode]("results", expressions(results, scope))
    groups.indexWhere(SessionWindows.isOne) match {
      case -1      => json.putNull("session")
      case session => json.put("session", session)
    }
    Encoded(json, results.map(result => registry.column(result.toAttribute)))
  }

  private def aggregateCall(calls: ArrayNode, call: AggregateExpression, scope: Scope): Int = {
    val function = call.aggregateFunction
    val node = calls.addObject().put("function", FunctionName.of(function))
    node.put("handle", registry.handle(function, scope))
    node.set[ObjectNode]("args", expressions(function.children, scope))
    node.put("distinct", call.isDistinct).put("in_order", function.isInstanceOf[OrderedAggregate])
    call.filter.fold(node.putNull("filter"))(f => node.put("filter", registry.handle(f, scope)))
    val column = registry.column(function.prettyName, call.dataType, call.nullable)
    node.put("column", column)
    column
  }

  def window(plan: Window, in: Input): Encoded = {
    val json = op("window")
    val listed = json.putArray("functions")
    val columns = plan.windowExpressions.map(windowCall(listed, _, in.scope))
    json.set[ObjectNode]("partition", expressions(plan.partitionSpec, in.scope))
    json.set[ObjectNode]("order", order(plan.orderSpec, in.scope))
    Encoded(json, in.out ++ columns)
  }

  private def windowCall(calls: ArrayNode, call: NamedExpression, scope: Scope): Int = {
    val WindowCall(called, args, frame) = WindowCall.of(call)
    val node = calls.addObject().put("function", FunctionName.of(called))
    node.put("handle", registry.handle(call, scope))
    node.set[ObjectNode]("args", expressions(args, scope))
    val column = registry.column(call.toAttribute)
    node.put("rows", frame == RowFrame).put("in_order", called.isInstanceOf[OrderedAggregate])
    node.put("column", column)
    column
  }

  def expand(plan: Expand, in: Input): Encoded = {
    val json = op("expand")
    val projections = json.putArray("projections")
    plan.projections.foreach(row => projections.add(expressions(row, in.scope)))
    Encoded(json, plan.output.map(registry.column))
  }

  def generate(plan: Generate, in: Input): Encoded = {
    val kept = plan.requiredChildOutput.map(in.scope.number)
    val generated = plan.generatorOutput.map(registry.column)
    val json = op("generate")
      .put("handle", registry.handle(plan.generator, in.scope))
      .put("outer", plan.outer)
    json.set[ObjectNode]("kept", HandleRegistry.array(kept))
    json.set[ObjectNode]("generated", HandleRegistry.array(generated))
    Encoded(json, kept ++ generated)
  }

  def union(plan: Union): Encoded = Encoded(op("union"), plan.output.map(registry.column))

  def sort(plan: Sort, in: Input): Encoded = {
    val json = op("sort")
    json.set[ObjectNode]("order", order(plan.order, in.scope))
    Encoded(json.put("global", plan.global), in.out)
  }

  def limit(limit: RowLimit, in: Input): Encoded = {
    val json = op("limit")
    limit.count.fold(json.putNull("count"))(json.put("count", _))
    Encoded(json.put("offset", limit.offset), in.out)
  }

  private def order(keys: Seq[SortOrder], scope: Scope): ArrayNode = {
    val array = Json.mapper.createArrayNode()
    keys.foreach { key =>
      array
        .addObject()
        .put("handle", registry.handle(key.child, scope))
        .put("ascending", key.direction == Ascending)
        .put("nulls_first", key.nullOrdering == NullsFirst)
    }
    array
  }

  private def expressions(all: Seq[Expression], scope: Scope): ArrayNode =
    HandleRegistry.array(all.map(registry.handle(_, scope)))

  private def op(name: String): ObjectNode = Json.obj().put("op", name)
}
