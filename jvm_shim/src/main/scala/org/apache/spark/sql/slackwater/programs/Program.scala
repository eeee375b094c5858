package org.apache.spark.sql.slackwater.programs

import java.util.concurrent.TimeUnit
import java.util.concurrent.locks.ReentrantLock

import scala.annotation.tailrec
import scala.collection.mutable

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.catalyst.expressions.BoundReference
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.slackwater.protocol.{Json, Wire}
import org.apache.spark.sql.slackwater.scan.{LocalIndex, Sources}
import org.apache.spark.sql.slackwater.values.{Canonical, Stored}
import org.apache.spark.sql.types.StructType

/** One operator of a program, by the name that people read.
  *
  * @param moves
  *   the arrangements that take its updates
  */
private[slackwater] final case class Step(
    name: String,
    operator: Operator,
    moves: Seq[Arranged]
)

/** The view that a program maintains. */
private[slackwater] final case class ProgramOwner(id: String, name: String)

/** What came of a hydration. All times are in ms. */
private[slackwater] sealed trait Hydrated

private[slackwater] object Hydrated {

  /** It is done. The output changes next at `nextChange` though no input does; Long.MaxValue: never. */
  final case class Done(nextChange: Long) extends Hydrated

  /** Arrangements that others have loaded want the updates from `upper` on. */
  final case class Behind(upper: Long) extends Hydrated
}

/** The updates that arrangements may lack where a program begins: those from `lower` (ms) on.
  *
  * @param deltas
  *   by the number of the operator that reads them; None: they cannot be had
  */
private[slackwater] final case class Missed(lower: Long, deltas: Option[Int => Updates]) {
  def isKnownFrom(time: Long): Boolean = deltas.isEmpty || lower <= time
}

/** The columns of a collection that an operator wants, in its order. */
private[slackwater] final class SourceColumns(val collection: String, fields: StructType) {
  val width: Int = fields.length

  /** As parts have them, with the update columns. */
  val stored: StructType = Wire.updateSchema(Stored.columns(Sources.stored(fields)))

  /** `stored` as a text, by which rows of parts are kept. */
  val storedText: String = stored.json

  /** Over such rows: the columns alone, in the form that equal values have. */
  val cut: Evaluation = new Evaluation(
    fields.indices.map(i => Canonical(BoundReference(i, stored(i).dataType, nullable = true)))
  )
}

/** What operators look up in, and the lookups of a program that differs in nothing but their order,
  * by their places.
  */
private[slackwater] final case class Lookups(
    arranged: Seq[Arranged],
    of: JsonNode => Map[Int, Operator]
)

/** The operators of a dataflow, each once, in the order in which they run, and what they keep
  * between ticks. Calls come one after the other, but for `close`, which waits for none.
  *
  * The promise: for every t in `[lower, upper)`, the updates of a tick up to t are by how much the
  * view's query over the inputs at t differs from what it was just before `lower`. A tick may be
  * run again: what is kept has all times from the last `committed` on.
  *
  * @param schema
  *   of the output's rows
  * @param sources
  *   what each operator that reads a collection wants of it
  * @param index
  *   what queries look up; then nobody wants the updates of the output
  * @param parts
  *   what other programs compute too
  */
private[slackwater] final class Program(
    val schema: StructType,
    val sources: Map[Int, SourceColumns],
    opened: IndexedSeq[Step],
    operatorStates: Seq[OperatorState],
    lookups: Lookups,
    val index: Option[LocalIndex],
    parts: Seq[ProgramPart]
) {
  private var steps = opened

  /** All that is kept of the updates of steps. */
  private val arranged: Seq[Arranged] = opened.flatMap(_.moves)

  /** What is kept of groups, and may be kept for several programs. */
  private val groups: Seq[ArrangementReader] = {
    val rows = arranged.flatMap(_.reader).toSet
    operatorStates.collect { case each: ArrangementReader if !rows(each) => each }
  }

  private val readers: Seq[ArrangementReader] = arranged.flatMap(_.reader) ++ groups

  private val partOf = parts.map(part => part.number -> part).toMap

  /** The output's rows in the form that equal values have; None: their types have one form. */
  private val canonical: Option[Evaluation] = {
    val values = schema.fields.indices.map(i => BoundReference(i, schema(i).dataType, true))
    Canonical.ofAll(values).map(new Evaluation(_))
  }

  /** For each step those whose updates it is the last to read. */
  private val lastRead: IndexedSeq[Seq[Int]] = {
    val readers = opened.indices.flatMap(i => opened(i).operator.inputs.map(_ -> i))
    val last = readers.groupMapReduce(_._1)(_._2)(math.max)
    opened.indices.map(i => last.collect { case (read, `i`) => read }.toSeq)
  }

  private val busy = new ReentrantLock
  @volatile private var isClosed = false
  private var isGivenBack = false

  /** Fills what is not filled with the contents at `asOf`.
    *
    * What others have loaded is brought forward by the updates that it has missed. Where these are
    * not known, or more than updates of collections are needed to tell what follows from them, it is
    * loaded anew.
    */
  def load(
      session: SparkSession,
      inputs: Inputs,
      asOf: Long,
      missed: Option[Missed]
  ): Hydrated = using(hydrated(session, inputs, asOf, missed))

  @tailrec
  private def hydrated(
      session: SparkSession,
      inputs: Inputs,
      asOf: Long,
      missed: Option[Missed]
  ): Hydrated = {
    operatorStates.foreach(_.fill(session, inputs, asOf))
    // How groups go on depends on what is kept of them.
    val late = groups.filter(_.upper <= asOf)
    val behind = arranged.filter(_.reader.exists(_.upper <= asOf))
    behind.flatMap(_.reader).map(_.upper).minOption match {
      case _ if late.nonEmpty =>
        late.foreach(_.renew())
        hydrated(session, inputs, asOf, missed)
      case None => Hydrated.Done(nextChange(asOf + 1))
      case Some(upper) if !missed.exists(_.isKnownFrom(upper)) => Hydrated.Behind(upper)
      case Some(_)                                             =>
        behind.filterNot(broughtForward(_, asOf, missed.get)).foreach(_.reader.foreach(_.renew()))
        hydrated(session, inputs, asOf, missed)
    }
  }

  /** Whether the arrangement has all updates up to `asOf` now. */
  private def broughtForward(each: Arranged, asOf: Long, missed: Missed): Boolean =
    missed.deltas.exists { deltas =>
      val budget = new TickBudget(TickBudget.ofHeap, None, () => isClosed)
      val tick = new TickContext(missed.lower, asOf + 1, steps.size, deltas, budget, None)
      def isLinear(i: Int): Boolean = {
        val operator = steps(i).operator
        // What has begun and ended by itself meanwhile its own state does not have any more.
        val isIdle = operator.followsInputs && operator.isIdle(tick)
        if (!isIdle && operator.isLinear) tick(i) = operator.run(tick, tick.metrics(i))
        else tick(i) = Updates.none
        isIdle || operator.isLinear
      }
      try {
        val follows = stepsOf(each.delta).forall(isLinear)
        if (follows) each.advance(tick)
        follows
      } catch { case ended: TickEnded if ended.reason == "large" => false }
    }

  /** The step and those that it needs, in their order. */
  private def stepsOf(last: Int): Seq[Int] = {
    val needed = mutable.BitSet(last)
    (last to 0 by -1).foreach(i => if (needed(i)) needed ++= steps(i).operator.inputs)
    needed.toSeq
  }

  /** Nothing has changed in the inputs before `upper`, nor by itself. Does nothing while another call
    * runs, which knows more.
    */
  def advanced(upper: Long): Unit = if (busy.tryLock()) {
    try if (!isClosed) readers.foreach(_.advanced(upper))
    finally busy.unlock()
    if (isClosed) giveBack()
  }

  /** The updates of the output in the interval, what was done for them, and what comes next.
    *
    * Throws [[TickEnded]] when it holds more rows than a tick may, takes longer than `mostMillis`, or
    * the program is closed.
    */
  def tick(
      lower: Long,
      upper: Long,
      mostMillis: Option[Long],
      deltas: Int => Updates,
      before: Option[Before]
  ): (Updates, ObjectNode) = using {
    val budget = new TickBudget(TickBudget.ofHeap, mostMillis, () => isClosed)
    val tick = new TickContext(lower, upper, steps.size, deltas, budget, before)
    readers.foreach(_.advanced(lower))
    val shared = sharedIn(tick)
    steps.indices.foreach { i =>
      val step = steps(i)
      val metrics = tick.metrics(i)
      val began = System.nanoTime()
      shared.get(i) match {
        case Some(updates) =>
          tick(i) = updates
          metrics.isShared = true
        case None if step.operator.isIdle(tick) => tick(i) = Updates.none
        case None                               => tick(i) = step.operator.run(tick, metrics)
      }
      if (!metrics.isShared) partOf.get(i).foreach(_.step.take(lower, upper, tick(i)))
      step.moves.foreach(_.advance(tick))
      metrics.emitted = tick(i).size
      metrics.nanos = System.nanoTime() - began
      lastRead(i).foreach(tick.forget)
    }
    operatorStates.foreach(_.reached(upper))
    val output = if (index.isDefined) Updates.none else tick(steps.size - 1)
    (inOneForm(output).consolidated, told(tick))
  }

  /** The updates of steps that another program has computed, and none of those that only they need.
    */
  private def sharedIn(tick: TickContext): Map[Int, Updates] = {
    val found = mutable.HashMap.empty[Int, Updates]
    parts.sortBy(-_.number).foreach { part =>
      if (!found.contains(part.number)) part.computed(tick).foreach { updates =>
        part.below.foreach(found.put(_, Updates.none))
        found.put(part.number, updates)
      }
    }
    found.toMap
  }

  private def inOneForm(updates: Updates): Updates = canonical.fold(updates) { form =>
    val formed = new Updates
    updates.foreach((row, time, diff) => formed.add(form(row).copy(), time, diff))
    formed
  }

  /** How many updates each arrangement keeps, of about how many keys. */
  def sizes: Seq[(Long, Long)] = using(lookups.arranged.map(each => (each.rows, each.keys)))

  /** Goes on with the order of lookups that the program `json` has. */
  def reorder(json: JsonNode): Unit = using {
    val others = lookups.of(json)
    steps = steps.zipWithIndex.map { case (step, i) =>
      others.get(i).fold(step)(operator => step.copy(operator = operator))
    }
  }

  /** The output is durable up to `upper`: nothing will be asked of times before. */
  def committed(upper: Long): Unit =
    using(operatorStates.foreach(_.committed(upper)))

  /** Gives back what is kept, now or when the call that runs has ended. */
  def close(): Unit = {
    isClosed = true
    operatorStates.foreach(_.cancel())
    giveBack()
  }

  private def using[A](body: => A): A = {
    busy.lock()
    try
      if (isClosed) throw new IllegalStateException("the program is closed")
      else body
    finally {
      busy.unlock()
      if (isClosed) giveBack()
    }
  }

  private def giveBack(): Unit = if (busy.tryLock()) {
    try
      if (!isGivenBack) {
        isGivenBack = true
        operatorStates.foreach(_.close())
      }
    finally busy.unlock()
  }

  private def nextChange(from: Long): Long =
    operatorStates.iterator.map(_.nextChange(from)).minOption.getOrElse(Long.MaxValue)

  private def told(tick: TickContext): ObjectNode = {
    val answer = Json.obj().put("next_change", nextChange(tick.upper))
    val list = answer.putArray("operators")
    steps.zip(tick.metrics).foreach { case (step, metrics) =>
      list
        .addObject()
        .put("operator", step.name)
        .put("mode", if (metrics.isShared) "shared" else step.operator.mode)
        .put("emitted", metrics.emitted)
        .put("looked_up", metrics.lookedUp)
        .put("micros", TimeUnit.NANOSECONDS.toMicros(metrics.nanos))
    }
    answer
  }
}
