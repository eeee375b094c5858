package org.apache.spark.sql.slackwater.arrangements

/** Transitions outside the heap in their order, each row once at each time. Only the first ones go. */
private[arrangements] final class TransitionRun(block: Block, end: Long, count: Long)
    extends Sorted {
  private var begin = block.address
  private var left = count

  def rows: Long = left
  def isEmpty: Boolean = begin == end

  /** Of those that are left. */
  def bytes: Long = end - begin

  /** Whether more than half of the memory has been let go of. */
  def isWasteful: Boolean = bytes < block.bytes / 2 && block.bytes > Slabs.PageBytes

  override def transitions: Transitions = new Transitions {
    private var place = begin
    override def isAtEnd: Boolean = place == end
    override def base: Object = null
    override def at: Long = place
    override def advance(): Unit = place += Transition.bytes(null, place)
  }

  /** Lets go of those before `time`. */
  def forget(time: Long): Unit =
    while (begin < end && Transition.time(null, begin) < time) {
      begin += Transition.bytes(null, begin)
      left -= 1
    }

  def free(memory: Allotment): Unit = memory.free(block)
}

private[arrangements] object TransitionRun {

  /** All of them as one run; None if they cancel out. Throws [[ArrangementTooLarge]]. */
  def of(all: Seq[Sorted], memory: Allotment): Option[TransitionRun] = {
    var bytes = 0L
    var count = 0L
    merge(all) { (base, at, _) =>
      bytes += Transition.bytes(base, at)
      count += 1
    }
    Option.when(count > 0) {
      val block = memory.allocate(bytes)
      var free = block.address
      merge(all) { (base, at, diff) =>
        Transition.copy(base, at, diff, free)
        free += Transition.bytes(base, at)
      }
      new TransitionRun(block, free, count)
    }
  }

  /** Visits each row once at each time, with the sum of its multiplicities if that is not 0. */
  private def merge(all: Seq[Sorted])(visit: (Object, Long, Long) => Unit): Unit = {
    var open = all.map(_.transitions).filterNot(_.isAtEnd)
    while (open.nonEmpty) {
      val first = open.reduceLeft((a, b) => if (compare(b, a) < 0) b else a)
      val (base, at) = (first.base, first.at)
      var sum = 0L
      var ended = false
      open.foreach { source =>
        while (!source.isAtEnd && Transition.compare(source.base, source.at, base, at) == 0) {
          sum = Math.addExact(sum, Transition.diff(source.base, source.at))
          source.advance()
        }
        ended ||= source.isAtEnd
      }
      if (ended) open = open.filterNot(_.isAtEnd)
      if (sum != 0) visit(base, at, sum)
    }
  }

  private def compare(a: Transitions, b: Transitions): Int =
    Transition.compare(a.base, a.at, b.base, b.at)
}
