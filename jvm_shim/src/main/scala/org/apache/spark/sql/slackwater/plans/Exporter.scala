package org.apache.spark.sql.slackwater.plans

import scala.collection.mutable

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.slackwater.plans.logical.{CollectionSlot, RowLimit}
import org.apache.spark.sql.slackwater.protocol.Json
import org.apache.spark.sql.slackwater.values.Keys

/** An exported operator as its readers see it. */
private[plans] final case class Input(node: Int, plan: LogicalPlan, out: Seq[Int]) {
  lazy val scope: Scope = Scope.of(plan.output, out)
}

/** Writes a normalised plan down, children first and from left to right. */
private[plans] final class Exporter {
  private val registry = new HandleRegistry
  private val operators = new OperatorJson(registry)
  private val plans = mutable.ArrayBuffer.empty[LogicalPlan]
  private val json = Json.mapper.createArrayNode()

  /** The subplans that give the same rows each time, by what they compute. */
  private val shared = mutable.HashMap.empty[LogicalPlan, Input]

  /** The collections alone: what gives all columns of one, by other names, computes the same. */
  private val collections = mutable.HashMap.empty[LogicalPlan, Input]

  def view(
      analyzed: LogicalPlan,
      normalised: LogicalPlan,
      selected: Option[Seq[Expression]],
      views: Seq[LogicalPlan],
      indexes: Seq[KeyedCollection]
  ): AnalyzedView = {
    val root = input(normalised)
    // After all else, which has the numbers that it has without.
    val indexed = Json.mapper.createArrayNode()
    indexes.foreach(each => indexed.add(keyed(each)))
    val kept = views.flatMap(query => shared.get(query.canonicalized)).map(_.node).distinct.sorted
    val answer = Json.obj().put("version", AnalyzedView.version)
    answer.set[ObjectNode]("columns", registry.columnsJson)
    answer.set[ObjectNode]("handles", registry.handlesJson)
    answer.set[ObjectNode]("nodes", json)
    answer.put("root", root.node)
    answer.set[ObjectNode]("collections", Json.texts(CollectionSlot.in(normalised)))
    answer.set[ObjectNode]("names", Json.texts(analyzed.output.map(_.name)))
    answer.set[ObjectNode]("schema", Json.ofSchema(analyzed.schema))
    answer.put("selects", selected.isDefined)
    answer.set[ObjectNode]("views", HandleRegistry.array(kept))
    answer.set[ObjectNode]("indexed", indexed)
    AnalyzedView(
      plans.toIndexedSeq,
      registry.handles,
      registry.columns,
      Json.mapper.writeValueAsString(answer),
      selected
    )
  }

  private def keyed(index: KeyedCollection): ObjectNode = {
    val slot = index.rows
    val known = collections.getOrElse(slot.canonicalized, exported(slot))
    val scope = Scope.of(slot.output, known.out)
    val node = Json.obj().put("node", known.node).put("name", index.name)
    def handles(keys: Seq[Expression]) = HandleRegistry.array(keys.map(registry.handle(_, scope)))
    node.set[ObjectNode]("keys", handles(index.keys))
    node.set[ObjectNode]("forms", handles(index.keys.map(Keys.of)))
    node
  }

  private def input(plan: LogicalPlan): Input = plan match {
    // Where rows are has no meaning.
    case moved: RepartitionOperation => seenAs(moved, input(moved.child))
    case moved: RebalancePartitions  => seenAs(moved, input(moved.child))
    case Constant(_)                 => exported(plan)
    case _ if !plan.deterministic    => exported(plan)
    case _                           =>
      shared.get(plan.canonicalized) match {
        case Some(first) => added(plan, Seq(first), operators.again(first))
        case None        =>
          val first = exported(plan)
          shared(plan.canonicalized) = first
          first
      }
  }

  private def seenAs(plan: LogicalPlan, input: Input): Input = input.copy(plan = plan)

  private def exported(plan: LogicalPlan): Input = reason(plan) match {
    case Some(reason) => added(plan, Nil, operators.other(plan, reason))
    case None         =>
      plan match {
        case slot: CollectionSlot =>
          val source = added(plan, Nil, operators.source(slot))
          collections(slot.canonicalized) = source
          source
        case leaf @ Constant(rows) => added(plan, Nil, operators.constant(leaf, rows))
        case RowLimit(limit)       => unary(plan, limit.child)(operators.limit(limit, _))
        case p: Project            => unary(plan, p.child)(operators.project(p, _))
        case f: Filter             => unary(plan, f.child)(filter(f, _))
        case a: Aggregate          => unary(plan, a.child)(operators.aggregate(a, _))
        case w: Window             => unary(plan, w.child)(operators.window(w, _))
        case e: Expand             => unary(plan, e.child)(operators.expand(e, _))
        case g: Generate           => unary(plan, g.child)(operators.generate(g, _))
        case s: Sort               => unary(plan, s.child)(operators.sort(s, _))
        case u: Union              => added(plan, u.children.map(input), operators.union(u))
        case j: Join               =>
          val left = input(j.left)
          val right = input(j.right)
          added(plan, Seq(left, right), operators.join(j, left, right))
        case _ => added(plan, Nil, operators.other(plan, "no such operator is maintained"))
      }
  }

  private def unary(plan: LogicalPlan, child: LogicalPlan)(encode: Input => Encoded): Input = {
    val below = input(child)
    added(plan, Seq(below), encode(below))
  }

  private def filter(plan: Filter, in: Input): Encoded =
    NowBound.all(plan).fold(operators.filter(plan, in))(operators.temporal(_, in))

  private def added(plan: LogicalPlan, inputs: Seq[Input], encoded: Encoded): Input = {
    encoded.json.set[ObjectNode]("in", HandleRegistry.array(inputs.map(_.node)))
    encoded.json.set[ObjectNode]("out", HandleRegistry.array(encoded.out))
    json.add(encoded.json)
    plans += plan
    Input(plans.size - 1, plan, encoded.out)
  }

  /** Why the expressions of an operator cannot be handed over. */
  private def reason(plan: LogicalPlan): Option[String] = {
    val all = plan.expressions.flatMap(_.collect { case e => e })
    all.collectFirst {
      case e: PythonFuncExpression if !isCalledByRow(plan, e) => s"the Python function ${e.name}"
      case e: PythonUDTF                                      => s"the Python function ${e.name}"
      case _: PlanExpression[_]                               => "a subquery that is no join"
      case _: OuterReference                                  => "a reference to an outer query"
    }
  }

  private def isCalledByRow(plan: LogicalPlan, function: Expression): Boolean =
    plan.isInstanceOf[Project] && PythonUDF.isScalarPythonUDF(function)
}
