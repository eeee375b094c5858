package org.apache.spark.sql.slackwater.programs

import scala.collection.mutable

/** The state of one arrangement that programs share. All times are in ms. */
private[slackwater] sealed trait ArrangementPhase

private[slackwater] object ArrangementPhase {

  /** Readers want it, and nobody loads it. */
  case object Registered extends ArrangementPhase

  /** A job for `loader` reads its contents at `asOf`. */
  final case class Loading(loader: Long, asOf: Long) extends ArrangementPhase

  /** It has the updates before `upper`; times up to `since` cannot be told apart. */
  final case class Loaded(since: Long, upper: Long) extends ArrangementPhase

  /** It is being loaded, and nobody waits for it any more. */
  case object Closing extends ArrangementPhase
}

/** An arrangement as a registry knows it: `readers` has the first time that each still reads. */
private[slackwater] final case class ArrangementEntry[I](
    number: Long,
    identity: I,
    phase: ArrangementPhase,
    readers: Map[Long, Long]
)

/** The arrangements of a replica as a value: what has happened goes in, what is to be done comes out.
  *
  * It knows no thread, no lock, no job and no memory. A shell calls its methods one at a time and
  * carries out, in order, the effects that they return; [[Arrangements]] is one. Readers and
  * arrangements have numbers, which are never used again.
  *
  * The promise, with `since` and `upper` of a loaded arrangement, and `from` of a reader of it:
  *
  *   - at all times `since <= from`, so that what a reader asks for is never compacted away;
  *   - a reader that is told [[Ready]] has `from < upper`;
  *   - of the readers of an arrangement that is not loaded, one can always go on;
  *   - readers that begin where an arrangement of their identity is loaded share it.
  *
  * Not guaranteed: that an identity has one arrangement. A reader that begins before the since of
  * the others' has another one, which later readers may share. Once all readers of an identity have
  * reached the same time and nothing changes any more, those that [[unite]] there share one.
  *
  * @tparam I
  *   what an arrangement holds: equal identities have equal contents at each time
  */
private[slackwater] final class ArrangementRegistry[I] {
  import ArrangementPhase._
  import ArrangementRegistry._

  private type Entry = ArrangementEntry[I]

  private val entries = mutable.LongMap.empty[Entry]
  private val numbers = mutable.HashMap.empty[I, mutable.TreeSet[Long]]
  private val places = mutable.LongMap.empty[Long]
  private var last = 0L

  /** A new reader, which begins at `asOf`. */
  def register(identity: I, asOf: Long): Long = {
    val reader = number()
    place(reader, identity, asOf)(_ => true)
    reader
  }

  /** What the reader has to do to find what it needs; [[Load]] makes it the loader. */
  def next(reader: Long): Next = {
    val entry = entryOf(reader)
    val from = entry.readers(reader)
    entry.phase match {
      case Registered if from == entry.readers.values.min =>
        put(entry.copy(phase = Loading(reader, from)))
        Load(entry.number, from)
      case Loaded(_, upper) if from < upper => Ready(entry.number)
      case Loaded(_, upper)                 => Behind(entry.number, upper)
      case _                                => Wait
    }
  }

  /** The arrangement has the contents that its loader was to read. */
  def loaded(arrangement: Long): Seq[Effect] = {
    val entry = entries(arrangement)
    entry.phase match {
      case Loading(_, asOf) =>
        put(entry.copy(phase = Loaded(asOf, asOf + 1)))
        Seq(LookAgain)
      case Closing =>
        remove(entry)
        Seq(Close(arrangement))
      case other => throw new IllegalStateException(s"$other is not being loaded")
    }
  }

  /** The loader has ended without the contents: another reader may load. */
  def failed(arrangement: Long): Seq[Effect] = {
    val entry = entries(arrangement)
    entry.phase match {
      case Loading(_, _) =>
        put(entry.copy(phase = Registered))
        Seq(LookAgain)
      case Closing =>
        remove(entry)
        Nil
      case other => throw new IllegalStateException(s"$other is not being loaded")
    }
  }

  /** The reader's arrangement has all updates before `upper`. */
  def advanced(reader: Long, upper: Long): Seq[Effect] = {
    val entry = entryOf(reader)
    entry.phase match {
      case Loaded(since, before) =>
        compacted(entry.copy(phase = Loaded(since, math.max(before, upper))))
      case other => throw new IllegalStateException(s"$other has no upper")
    }
  }

  /** The reader will not ask for times before `from` again. */
  def reads(reader: Long, from: Long): Seq[Effect] = {
    val entry = entryOf(reader)
    val later = math.max(from, entry.readers(reader))
    compacted(entry.copy(readers = entry.readers.updated(reader, later)))
  }

  /** Lets the reader go on from the arrangement of its identity that has the earliest since, if that
    * has all updates before `reached`: the reader brings none of them a second time.
    *
    * Readers move to the earlier since, as all that they read is there; who reads from before the
    * later since could not move to that. Of arrangements with one since the first is taken.
    */
  def unite(reader: Long, reached: Long): Seq[Effect] = {
    val entry = entryOf(reader)
    val from = entry.readers(reader)
    val better = for {
      number <- numbers(entry.identity).toSeq
      to = entries(number)
      place <- order(to)
      if order(entry).exists(Ordering[(Long, Long)].lt(place, _))
      if isReadable(to, from) && reaches(to, math.max(reached, from + 1))
    } yield (place, to)
    better.minByOption(_._1).toSeq.flatMap { case (_, to) =>
      val effects = left(entry, reader)
      add(to, reader, from)
      effects
    }
  }

  private def order(entry: Entry): Option[(Long, Long)] = entry.phase match {
    case Loaded(since, _) => Some((since, entry.number))
    case _                => None
  }

  private def reaches(entry: Entry, upper: Long): Boolean = entry.phase match {
    case Loaded(_, held) => upper <= held
    case _               => false
  }

  /** The reader begins where its arrangement is behind, and cannot bring it forward: it gets one that
    * is not behind, or is still to be loaded.
    */
  def renew(reader: Long): Seq[Effect] = {
    val entry = entryOf(reader)
    val from = entry.readers(reader)
    val effects = left(entry, reader)
    place(reader, entry.identity, from)(_.phase match {
      case Loaded(_, upper) => from < upper
      case _                => true
    })
    effects
  }

  /** A new reader at `asOf` of what `reader` has; None: its contents then are not there any more, or
    * not yet.
    */
  def pin(reader: Long, asOf: Long): Option[Long] =
    places
      .get(reader)
      .map(entries(_))
      .filter(each => isLoaded(each) && isReadable(each, asOf))
      .map { entry =>
        val pinned = number()
        add(entry, pinned, asOf)
        pinned
      }

  /** The reader reads no more. */
  def leave(reader: Long): Seq[Effect] = {
    val effects = left(entryOf(reader), reader)
    places.remove(reader)
    effects
  }

  /** The number of the arrangement that the reader has. */
  def arrangementOf(reader: Long): Long = places(reader)

  /** Whether readers of an identity have several arrangements. */
  def isApart: Boolean = numbers.values.exists(_.count(entries(_).readers.nonEmpty) > 1)

  /** All arrangements, by their numbers. */
  def all: Seq[ArrangementEntry[I]] = entries.values.toSeq.sortBy(_.number)

  /** Throws IllegalStateException when what it holds contradicts itself. */
  def validate(): Unit = {
    def refuse(wrong: Boolean, text: => String): Unit =
      if (wrong) throw new IllegalStateException(text)
    entries.values.foreach { entry =>
      refuse(!numbers.get(entry.identity).exists(_(entry.number)), s"nobody finds $entry")
      entry.readers.keys.foreach(r =>
        refuse(!places.get(r).contains(entry.number), s"$r in $entry")
      )
      val isClosing = entry.phase == Closing
      refuse(entry.readers.isEmpty != isClosing, s"who reads $entry?")
      val earliest = entry.readers.values.minOption
      entry.phase match {
        case Loading(_, asOf) =>
          refuse(earliest.exists(_ < asOf), s"a reader of $entry begins before it")
        case Loaded(since, upper) =>
          refuse(since >= upper, s"$entry is complete at no time")
          refuse(earliest.exists(_ < since), s"a reader of $entry begins before its since")
          refuse(
            earliest.exists(from => math.min(from, upper - 1) > since),
            s"$entry keeps too much"
          )
        case _ =>
      }
    }
    places.foreach { case (reader, at) =>
      refuse(!entries.get(at).exists(_.readers.contains(reader)), s"$reader is not in $at")
    }
    refuse(numbers.values.map(_.size).sum != entries.size, "an identity has what is not there")
  }

  private def number(): Long = {
    last += 1
    last
  }

  private def entryOf(reader: Long): Entry = entries(places(reader))

  /** Of those that are fit, the one with which the reader has least to do. */
  private def place(reader: Long, identity: I, asOf: Long)(fits: Entry => Boolean): Unit = {
    val known = numbers.getOrElseUpdate(identity, mutable.TreeSet.empty[Long])
    val found = known.toSeq.map(entries(_)).filter(each => isReadable(each, asOf) && fits(each))
    val entry = found.minByOption(cost(_, asOf)).getOrElse {
      val made = ArrangementEntry[I](number(), identity, Registered, Map.empty)
      known.add(made.number)
      made
    }
    add(entry, reader, asOf)
  }

  private def add(entry: Entry, reader: Long, from: Long): Unit = {
    put(entry.copy(readers = entry.readers.updated(reader, from)))
    places.put(reader, entry.number)
  }

  private def isReadable(entry: Entry, asOf: Long): Boolean = entry.phase match {
    case Registered       => true
    case Loading(_, from) => from <= asOf
    case Loaded(since, _) => since <= asOf
    case Closing          => false
  }

  private def isLoaded(entry: Entry): Boolean = entry.phase match {
    case Loaded(_, _) => true
    case _            => false
  }

  private def cost(entry: Entry, asOf: Long): (Int, Long) = entry.phase match {
    case Loaded(_, upper) if asOf < upper => (0, entry.number)
    case Loaded(_, upper)                 => (2, -upper)
    case _                                => (1, entry.number)
  }

  private def left(entry: Entry, reader: Long): Seq[Effect] = {
    val less = entry.copy(readers = entry.readers - reader)
    less.phase match {
      case Loaded(_, _) if less.readers.isEmpty =>
        remove(entry)
        Seq(Close(entry.number))
      case Registered if less.readers.isEmpty =>
        remove(entry)
        Nil
      case Loading(_, _) if less.readers.isEmpty =>
        put(less.copy(phase = Closing))
        Nil
      case Registered =>
        put(less)
        Seq(LookAgain)
      case _ => compacted(less)
    }
  }

  private def compacted(entry: Entry): Seq[Effect] = entry.phase match {
    case Loaded(since, upper) =>
      val later = math.min(entry.readers.values.min, upper - 1)
      put(entry.copy(phase = Loaded(math.max(since, later), upper)))
      if (later > since) Seq(Compact(entry.number, later)) else Nil
    case _ =>
      put(entry)
      Nil
  }

  private def put(entry: Entry): Unit = entries.put(entry.number, entry)

  private def remove(entry: Entry): Unit = {
    entries.remove(entry.number)
    val known = numbers(entry.identity)
    known.remove(entry.number)
    if (known.isEmpty) numbers.remove(entry.identity)
  }
}

private[slackwater] object ArrangementRegistry {

  /** What a reader has to do. */
  sealed trait Next

  /** To load the arrangement with the contents at `asOf`, and to say `loaded` or `failed`. */
  final case class Load(arrangement: Long, asOf: Long) extends Next

  /** To ask again when it is told to look again. */
  case object Wait extends Next

  /** To read. */
  final case class Ready(arrangement: Long) extends Next

  /** To give the arrangement the updates from `upper` on, or to say `renew`. */
  final case class Behind(arrangement: Long, upper: Long) extends Next

  /** What a shell has to do. */
  sealed trait Effect

  /** Readers that were told to wait ask again. */
  case object LookAgain extends Effect

  /** Nobody asks the arrangement for times before `since` any more. */
  final case class Compact(arrangement: Long, since: Long) extends Effect

  /** Nobody reads the arrangement any more: its memory is given back. */
  final case class Close(arrangement: Long) extends Effect
}
