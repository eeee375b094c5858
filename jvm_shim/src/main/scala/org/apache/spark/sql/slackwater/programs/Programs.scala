package org.apache.spark.sql.slackwater.programs

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction
import org.apache.spark.sql.catalyst.expressions.{BoundReference, Expression, Generator, Literal}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.arrangements.{Arrangement, TransitionQueue}
import org.apache.spark.sql.slackwater.plans.{AnalyzedView, NowBound, SlotExpressions}
import org.apache.spark.sql.slackwater.plans.logical.CollectionSlot
import org.apache.spark.sql.slackwater.scan.IndexKeys
import org.apache.spark.sql.types.{StructField, StructType}

/** Makes a program of what the planner says, in the form of `docs/internals/tick_programs.md`.
  *
  * @param environment
  *   the one whose collections it reads
  * @param settings
  *   with which the view's expressions mean what they mean
  * @param owner
  *   the view
  * @param asOf
  *   a time at which the view's output is complete; ticks begin after it
  * @param compile
  *   a plan over slots, to be run often
  * @param resident
  *   whether what it looks up is kept between ticks, or read by each
  */
private[slackwater] final class Programs(
    view: AnalyzedView,
    json: JsonNode,
    arrangements: Arrangements,
    environment: String,
    settings: Map[String, String],
    owner: ProgramOwner,
    asOf: Long,
    compile: LogicalPlan => Compiled,
    resident: Boolean
) {
  import Programs._

  private val binder = new ExpressionBinder(
    view,
    json.get("aliases").properties.asScala.map(e => e.getKey.toInt -> e.getValue.asInt).toMap
  )
  private val nodes = json.get("nodes").asScala.toIndexedSeq
  private val layouts = nodes.map(node => ints(node.get("out")))
  private val specs = json.get("arrangements").asScala.toIndexedSeq.map(spec)

  /** What no other program has. */
  private val own = new Object
  private val operatorStates = mutable.ArrayBuffer.empty[OperatorState]

  /** The states of groups, by the step that keeps them. */
  private val groupStates = mutable.HashMap.empty[Int, ArrangementReader]

  private val stepInputs = nodes.map { node =>
    val in = Option(node.get("in")).toSeq
    val all = in ++ Seq("left", "right").flatMap(side => Option(node.get(side)))
    all.flatMap(each => if (each.isArray) ints(each) else Seq(each.asInt))
  }

  /** The steps that other programs may have too, each with the node of the plan whose rows it has. */
  private val sharedSteps: Seq[(Int, Int)] =
    if (!resident) Nil
    else
      json.get("shared").asScala.toSeq.map(e => e.get("step").asInt -> e.get("node").asInt).filter {
        case (step, _) =>
          val kinds = needed(Seq(step)).map(nodes(_).get("op").asText)
          stepInputs(step).nonEmpty && !kinds("temporal")
      }

  private val inShared = needed(sharedSteps.map(_._1))

  /** The steps and those that they need, but for what only `without` needs. */
  private def needed(last: Seq[Int], without: Set[Int] = Set.empty): Set[Int] = {
    val found = mutable.BitSet(last: _*)
    nodes.indices.reverse.foreach { i =>
      if (found(i) && !without(i)) found ++= stepInputs(i)
    }
    found.toSet
  }

  def program: Program =
    try {
      val arranged = specs.map(arrangedOf)
      val index = Option(json.get("index")).filterNot(_.isNull).map(indexOf)
      val steps = nodes.indices.map { i =>
        Step(
          nodes(i).get("op").asText,
          operator(i, arranged),
          (arranged ++ index.map(_._1)).filter(_.delta == i)
        )
      }
      val ends = index.fold(nodes.size - 1)(_._1.delta)
      val parts = sharedSteps.map { case (step, node) => part(step, node, ends, steps) }
      operatorStates ++= parts.map(_._2)
      new Program(
        schema,
        sources,
        steps,
        operatorStates.toSeq,
        Lookups(arranged, lookups(arranged, _)),
        index.flatMap(_._2),
        parts.map(_._1)
      )
    } catch {
      case error: Throwable =>
        operatorStates.foreach(_.close())
        throw error
    }

  /** Of each operator that reads a collection, the collection's columns that it wants. */
  private def sources: Map[Int, SourceColumns] =
    nodes.indices
      .filter(nodes(_).get("op").asText == "delta")
      .map { i =>
        val names = nodes(i).get("fields").asScala.map(_.asText)
        val columns = names.zip(layouts(i)).map { case (field, column) =>
          StructField(field, view.columns(column).dataType)
        }
        i -> new SourceColumns(nodes(i).get("source").asText, StructType(columns.toSeq))
      }
      .toMap

  private def schema: StructType = schemaOf(layouts.last)

  private def schemaOf(layout: Seq[Int]): StructType =
    StructType(layout.map(column => StructField(s"c$column", view.columns(column).dataType)))

  /** A step that other programs have too, and the end of this program's interest in it. */
  private def part(
      number: Int,
      node: Int,
      ends: Int,
      steps: IndexedSeq[Step]
  ): (ProgramPart, OperatorState) = {
    val all = needed(Seq(number))
    val below = all - number -- needed(Seq(ends), Set(number))
    val states = below.toSeq.sorted.flatMap { i =>
      steps(i).moves.flatMap(_.reader) ++ groupStates.get(i)
    }
    val identity = StepIdentity(environment, settings, view.nodes(node).canonicalized)
    val shared = arrangements.updates.join(identity)
    val sources = all.toSeq.sorted.filter(nodes(_).get("op").asText == "delta")
    val leaves = new OperatorState {
      override def fill(session: SparkSession, inputs: Inputs, asOf: Long): Unit = ()
      override def reached(upper: Long): Unit = ()
      override def committed(upper: Long): Unit = ()
      override def nextChange(from: Long): Long = Long.MaxValue
      override def close(): Unit = arrangements.updates.leave(identity)
    }
    // The step itself may keep groups.
    (ProgramPart(number, below, sources, states ++ groupStates.get(number), shared), leaves)
  }

  // Arrangements

  private def spec(node: JsonNode): Spec = {
    val delta = node.get("delta").asInt
    val handles = ints(node.get("keys"))
    val columns = ints(node.get("columns"))
    val seen = Option(node.get("seen")).filterNot(_.isNull)
    // An index on a collection has its keys in the form that reads ask for.
    val keys = seen.fold(binder.keys(handles, layouts(delta))) { _ =>
      handles.map(handle => IndexKeys.form(binder.bound(handle, layouts(delta))))
    }
    Spec(
      node.get("node").asInt,
      delta,
      keys,
      flags(node.get("null_safe")),
      columns.map(binder.column(_, layouts(delta))),
      ints(node.get("key_columns")) ++ seen.fold(columns)(each => ints(each.get("columns"))),
      seen.fold(handles)(each => ints(each.get("keys"))),
      seen.fold(IndexedSeq.empty[JsonNode])(_.get("stages").asScala.toIndexedSeq)
    )
  }

  /** Each stage has the numbers of the columns that come to it. */
  private def seenRows(spec: Spec): SeenRows = new SeenRows(spec.stages.map { stage =>
    val layout = ints(stage.get("columns"))
    if (stage.has("conjuncts")) SeenRows.filtered(conditions(stage, layout).get)
    else
      SeenRows.projected(binder.project(ints(stage.get("exprs")).map(binder.bound(_, layout))))
  })

  private def arrangedOf(spec: Spec): Arranged = {
    val identity = ArrangementIdentity(
      environment,
      settings,
      view.nodes(spec.node).canonicalized,
      spec.keys.map(_.canonicalized),
      spec.nullSafe,
      spec.columns,
      None
    )
    val rows = Hydration.arranged(spec.node, spec.keys, spec.nullSafe, spec.columns) _
    val index = indexed(identity, spec.keys.size, spec.columns.size)(rows)
    val entry = new Keyed(binder.project(spec.keys), spec.nullSafe, binder.project(spec.columns))
    new Arranged(index, spec.delta, entry, seenRows(spec))
  }

  private def indexed(identity: ArrangementIdentity, keyFields: Int, rowFields: Int)(
      rows: (Before, Option[WantedKeys]) => Contents
  ): Index =
    if (resident) {
      val made = new ArrangementReader(
        arrangements,
        arrangements.register(identity, owner.id, asOf),
        () => new Arrangement(keyFields, rowFields, arrangements.budget, owner.name),
        rows(_, None)
      )
      operatorStates += made
      made
    } else {
      val made =
        new ScannedIndex(keyFields, rowFields, owner.name, arrangements.scanned)((before, keys) =>
          rows(before, Some(keys))
        )
      operatorStates += made
      made
    }

  // The index for queries

  /** The index, and how queries see it. */
  private def indexOf(node: JsonNode): (Arranged, Option[QueryIndex]) = {
    val at = node.get("node").asInt
    val delta = node.get("delta").asInt
    val kept = ints(node.get("columns"))
    val values = node.get("keys").asScala.map(expression(_, layouts(delta))).toSeq
    val keys = values.map(IndexKeys.form)
    val ofCollection = view.nodes(at) match {
      case slot: CollectionSlot =>
        val named = slot.output.zip(slot.fields).map { case (column, field) =>
          column.withName(field)
        }
        values.map(_.transform { case BoundReference(i, _, _) => named(i) })
      case other => SlotExpressions.of(other)
    }
    val columns = kept.map(binder.column(_, layouts(delta)))
    val nullSafe = keys.map(_ => true).toIndexedSeq
    val arranged = arrangedOf(Spec(at, delta, keys, nullSafe, columns, kept))
    val read = arranged.reader.map { reader =>
      val names = node.get("names").asScala.map(_.asText).toSeq
      val fields = names.zip(kept).map { case (field, number) =>
        StructField(field, view.columns(number).dataType)
      }
      val over = view.selected.getOrElse(ofCollection).takeRight(keys.size)
      // Rows of a collection have their form already.
      val isComputed = view.selected.isDefined || ofCollection.isEmpty
      new QueryIndex(
        owner.name,
        StructType(fields),
        over,
        values.map(_.dataType),
        reader,
        isComputed
      )
    }
    (arranged, read)
  }

  // Operators

  private def operator(i: Int, arranged: IndexedSeq[Arranged]): Operator = {
    val node = nodes(i)
    def in(field: String): Int = node.get(field).asInt
    def layout(field: String): IndexedSeq[Int] = layouts(in(field))
    node.get("op").asText match {
      case "delta"    => new Delta(i)
      case "constant" => Unchanging
      case "map"      =>
        val made = node.get("exprs").asScala.map(expression(_, layout("in"))).toSeq
        if (made.exists(ProjectRows.isNeeded)) projected(made, in("in"))
        else new MapRows(in("in"), binder.project(made))
      case "filter" =>
        new FilterRows(in("in"), conditions(node, layout("in")).get)
      case "expand" =>
        val projections = node.get("projections").asScala.map { each =>
          binder.project(ints(each).map(binder.bound(_, layout("in"))))
        }
        new ExpandRows(in("in"), projections.toSeq)
      case "temporal" => temporal(node)
      case "generate" => generate(node, i)
      case "union"    => new UnionAll(ints(node.get("in")))
      case "lookup"   => lookup(node, layouts, i, arranged)
      case "presence" => semiJoin(node, arranged)
      case "reduce"   => reduce(node, i)
      case "regroup"  => recompute(node, i, arranged)
      case other      => throw new IllegalStateException(s"no operator is called $other")
    }
  }

  private def conditions(node: JsonNode, layout: IndexedSeq[Int]): Option[Condition] =
    binder.condition(node.get("conjuncts").asScala.toSeq, layout)

  private def expression(node: JsonNode, layout: IndexedSeq[Int]): Expression =
    if (node.has("handle")) binder.bound(node.get("handle").asInt, layout)
    else if (node.has("column")) binder.column(node.get("column").asInt, layout)
    else if (node.has("null")) Literal(null, view.columns(node.get("null").asInt).dataType)
    else Literal(node.get("literal").asBoolean)

  private def projected(made: Seq[Expression], in: Int): Operator = {
    val input = schemaOf(layouts(in))
    new ProjectRows(in, made.map(_.dataType), compile(ProjectRows.plan(made, input)))
  }

  private def temporal(node: JsonNode): Operator = {
    val in = node.get("in").asInt
    val bounds = node.get("bounds").asScala.toIndexedSeq.map { bound =>
      val value = binder.bound(bound.get("handle").asInt, layouts(in))
      NowBound(bound.get("comparison").asText, value)
    }
    val validity = new Validity(bounds)
    val queue = new TransitionQueue(layouts(in).size, arrangements.budget, owner.name)
    operatorStates += new TemporalBuffer(queue, node.get("node").asInt, validity)
    new TemporalFilter(in, validity, queue)
  }

  private def generate(node: JsonNode, i: Int): Operator = {
    val in = node.get("in").asInt
    val generated = ints(node.get("generated"))
    val generator = binder.bound(node.get("generator").asInt, layouts(in))
    new GenerateRows(
      in,
      generator.asInstanceOf[Generator],
      node.get("outer").asBoolean,
      generated.size,
      binder.columns(layouts(i), layouts(in) ++ generated)
    )
  }

  /** The lookups of a program that differs in nothing but their order, by their places. */
  private def lookups(arranged: IndexedSeq[Arranged], other: JsonNode): Map[Int, Operator] = {
    val made = other.get("nodes").asScala.toIndexedSeq
    val (ordered, same) = made.indices.partition(made(_).get("op").asText == "lookup")
    val sameInputs = ordered.forall(i => made(i).get("in") == nodes(i).get("in"))
    if (made.size != nodes.size || !sameInputs || !same.forall(i => made(i) == nodes(i)))
      throw new IllegalStateException(s"another program for ${owner.name}")
    val order = made.map(node => ints(node.get("out")))
    ordered.map(i => i -> lookup(made(i), order, i, arranged)).toMap
  }

  private def lookup(
      node: JsonNode,
      layouts: IndexedSeq[IndexedSeq[Int]],
      i: Int,
      arranged: IndexedSeq[Arranged]
  ): Operator = {
    val in = node.get("in").asInt
    val number = node.get("arrangement").asInt
    val both = layouts(in) ++ specs(number).layout
    new Lookup(
      in,
      arranged(number),
      binder.project(binder.keys(ints(node.get("keys")), layouts(in))),
      flags(node.get("null_safe")),
      node.get("old").asBoolean,
      conditions(node, both),
      binder.columns(layouts(i), both)
    )
  }

  private def semiJoin(node: JsonNode, arranged: IndexedSeq[Arranged]): Operator = {
    val left = node.get("left").asInt
    val right = node.get("right").asInt
    val ours = node.get("left_arrangement").asInt
    val theirs = node.get("right_arrangement").asInt
    new SemiJoinDelta(
      left,
      right,
      arranged(ours),
      arranged(theirs),
      binder.project(binder.keys(specs(ours).handles, layouts(left))),
      binder.project(binder.keys(specs(theirs).handles, layouts(right))),
      flags(node.get("null_safe")),
      conditions(node, layouts(left) ++ specs(theirs).layout),
      binder.columns(layouts(left), specs(ours).layout),
      node.get("present").asBoolean
    )
  }

  private def reduce(node: JsonNode, i: Int): Operator = {
    val in = node.get("in").asInt
    val keys = ints(node.get("groups")).map(binder.bound(_, layouts(in)))
    val aggregates = node.get("aggregates").asScala.toSeq.map { each =>
      val function = view.handles(each.get("function").asInt).asInstanceOf[AggregateFunction]
      val filter = Option(each.get("filter")).filterNot(_.isNull).map(h => view.handles(h.asInt))
      Accumulated.of(function, filter, binder.over(_, layouts(in)))
    }
    val reduction = Reduction(keys, aggregates)
    val identity = ArrangementIdentity(
      environment,
      settings,
      view.nodes(node.get("node").asInt).canonicalized,
      keys.map(_.canonicalized),
      Nil,
      Nil,
      Some(if (inShared(i)) GroupStates(aggregates.map(formOf(_, layouts(in)))) else (own, i))
    )
    val states =
      indexed(identity, keys.size, 1)(Hydration.reduced(node.get("node").asInt, reduction))
    states match {
      case arranged: ArrangementReader => groupStates.put(i, arranged)
      case _                           =>
    }
    val types = keys.map(_.dataType) ++ aggregates.map(_.function.dataType)
    val results = types.zipWithIndex.map { case (t, at) => BoundReference(at, t, nullable = true) }
    new Reduce(in, reduction, states, binder.project(results))
  }

  /** What is accumulated, in a form that is the same in other plans. */
  private def formOf(aggregate: Accumulated, layout: Seq[Int]): Seq[Expression] =
    Seq(binder.over(aggregate.function, layout).canonicalized, aggregate.input.canonicalized)

  private def recompute(node: JsonNode, i: Int, arranged: IndexedSeq[Arranged]): Operator = {
    val in = node.get("in").asInt
    val number = node.get("arrangement").asInt
    val parts = Tagged.of(view.nodes(node.get("node").asInt))
    val query = compile(parts.tagged)
    new ReduceByRecompute(
      in,
      arranged(number),
      binder.project(binder.keys(specs(number).handles, layouts(in))),
      binder.columns(layouts(in), specs(number).layout),
      schemaOf(layouts(in)),
      schemaOf(layouts(i)),
      node.get("once").asBoolean,
      query,
      parts.ofNothing.map(plan => compile(plan).run(Map(Tagged.slot -> noRows)).head.copy())
    )
  }
}

private[slackwater] object Programs {

  /** What is kept of groups: the same of the same aggregates of the same rows. */
  private final case class GroupStates(aggregates: Seq[Seq[Expression]])

  /** @param layout
    *   of the keys and of what is seen of the columns
    * @param handles
    *   the keys of a row that is seen
    * @param stages
    *   what a row goes through before it is seen
    */
  private final case class Spec(
      node: Int,
      delta: Int,
      keys: Seq[Expression],
      nullSafe: IndexedSeq[Boolean],
      columns: Seq[Expression],
      layout: IndexedSeq[Int],
      handles: IndexedSeq[Int] = IndexedSeq.empty,
      stages: IndexedSeq[JsonNode] = IndexedSeq.empty
  )

  private val noRows: () => Iterator[InternalRow] = () => Iterator.empty

  private def ints(node: JsonNode): IndexedSeq[Int] = node.asScala.map(_.asInt).toIndexedSeq
  private def flags(node: JsonNode): IndexedSeq[Boolean] =
    node.asScala.map(_.asBoolean).toIndexedSeq
}
