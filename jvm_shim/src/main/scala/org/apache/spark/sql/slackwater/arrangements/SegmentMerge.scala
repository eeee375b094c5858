package org.apache.spark.sql.slackwater.arrangements

import java.util.Arrays

import scala.collection.mutable.ArrayBuffer

/** Makes new segments of a segment's base and overlay: consolidated, packed, cut where they are large.
  *
  * Both are read only, so others may read the segment meanwhile. An update is its address: in the log,
  * or in the stage to which the base is unpacked.
  */
private[arrangements] final class SegmentMerge(
    segment: Segment,
    since: Long,
    layout: Layout,
    memory: Allotment
) {
  private val old = segment.base.contents
  private val log = segment.overlay.log
  private val most = Math.addExact(old.updates, log.rows)

  // What is left, in groups, in the order of hashes; in each group what is versioned comes first.
  private val updates = new Array[Long](most)
  private val diffs = new Array[Long](most)
  private var left = 0
  private val groups = new Groups

  // Updates of the same hash, then of the same key.
  private var run = new Array[Long](64)
  private var runLength = 0
  private var runHasNews = false
  private val consolidation = new Consolidation(since)

  /** In the order of hashes. Throws [[ArrangementTooLarge]] and then keeps no memory. */
  def segments(): Seq[Segment] = {
    val stage = memory.allocate(old.unpackedBytes)
    try {
      segment.base.unpack(stage.address, since, layout)
      collect(stage.address)
      val parts = ArrayBuffer.empty[Segment]
      try cut(segment.depth, 0, groups.size, parts)
      catch {
        case failure: Throwable =>
          parts.foreach(_.close())
          throw failure
      }
      parts.toSeq
    } finally memory.free(stage)
  }

  /** Merges the base, which is in order already, with the log. */
  private def collect(stage: Long): Unit = {
    val sorted = logInOrder()
    val stageEnd = stage + old.unpackedBytes
    var staged = stage
    var logged = 0
    while (staged < stageEnd || logged < sorted.length) {
      val hash =
        if (logged == sorted.length) Update.hash(null, staged)
        else if (staged == stageEnd) SegmentMerge.hashOf(sorted(logged))
        else lower(Update.hash(null, staged), SegmentMerge.hashOf(sorted(logged)))
      runLength = 0
      runHasNews = false
      while (staged < stageEnd && Update.hash(null, staged) == hash) {
        addToRun(staged)
        staged += Update.bytes(null, staged)
      }
      while (logged < sorted.length && SegmentMerge.hashOf(sorted(logged)) == hash) {
        addToRun(log.start + 8 * (sorted(logged) & 0xffffffffL))
        runHasNews = true
        logged += 1
      }
      takeRun(hash)
    }
  }

  private def lower(a: Int, b: Int): Int = if (Integer.compareUnsigned(a, b) <= 0) a else b

  private def addToRun(update: Long): Unit = {
    if (runLength == run.length) run = Arrays.copyOf(run, 2 * runLength)
    run(runLength) = update
    runLength += 1
  }

  /** Hash and place of each update in the log, so that their order is that of the hashes. */
  private def logInOrder(): Array[Long] = {
    val sorted = new Array[Long](log.rows)
    var at = log.start
    var i = 0
    while (i < sorted.length) {
      sorted(i) = (Update.hash(null, at) ^ Int.MinValue).toLong << 32 | ((at - log.start) / 8)
      at += Update.bytes(null, at)
      i += 1
    }
    Arrays.sort(sorted)
    sorted
  }

  /** Different keys may have the same hash: takes them out of the run one after the other. */
  private def takeRun(hash: Int): Unit = {
    var from = 0
    while (from < runLength) {
      var to = from + 1
      var i = to
      while (i < runLength) {
        if (Update.sameKey(run(from), run(i))) {
          val other = run(to)
          run(to) = run(i)
          run(i) = other
          to += 1
        }
        i += 1
      }
      takeGroup(hash, from, to)
      from = to
    }
  }

  private def takeGroup(hash: Int, from: Int, to: Int): Unit = {
    val consolidated = to - from > 1 && (runHasNews || old.versioned > 0)
    if (consolidated) consolidation.of(run, from, to) else consolidation.take(run, from, to)
    val start = left
    take(from, to, plain = false)
    val versioned = left - start
    take(from, to, plain = true)
    if (left > start) groups.add(hash, start, versioned)
  }

  private def take(from: Int, to: Int, plain: Boolean): Unit = {
    var i = from
    while (i < to) {
      val diff = consolidation.diff(i - from)
      if (diff != 0 && (diff == 1 && Update.time(null, run(i)) <= since) == plain) {
        updates(left) = run(i)
        diffs(left) = diff
        left += 1
      }
      i += 1
    }
  }

  /** Groups `from` until `to` as segments of that depth or deeper. */
  private def cut(depth: Int, from: Int, to: Int, parts: ArrayBuffer[Segment]): Unit = {
    val rows = groups.start(to, left) - groups.start(from, left)
    if (rows > 2L * layout.shape.segmentRows && isWorthCutting(rows, from, to)) {
      val middle = groups.firstWithBit(31 - depth, from, to)
      cut(depth + 1, from, middle, parts)
      cut(depth + 1, middle, to, parts)
    } else parts += new Segment(depth, pack(depth, from, to), memory)
  }

  /** A hot key stays in one segment. It should not be cut until it is alone. */
  private def isWorthCutting(rows: Int, from: Int, to: Int): Boolean = {
    var largest = 0
    var i = from
    while (i < to) {
      largest = math.max(largest, groups.start(i + 1, left) - groups.start(i, left))
      i += 1
    }
    rows - largest > layout.shape.segmentRows && groups.hash(from) != groups.hash(to - 1)
  }

  private def pack(depth: Int, from: Int, to: Int): Base =
    if (from == to) Base.empty
    else new Packing(updates, diffs, groups, left, since, layout, memory).pack(depth, from, to)
}

private object SegmentMerge {
  def hashOf(sorted: Long): Int = (sorted >>> 32).toInt ^ Int.MinValue
}

/** Where groups of updates begin, and how many in each have a time and a multiplicity of their own. */
private[arrangements] final class Groups {
  private var hashes = new Array[Int](1024)
  private var starts = new Array[Int](1024)
  private var versions = new Array[Int](1024)
  private var count = 0

  def size: Int = count
  def hash(i: Int): Int = hashes(i)
  def versioned(i: Int): Int = versions(i)

  /** `end` is where the last group ends. */
  def start(i: Int, end: Int): Int = if (i == count) end else starts(i)

  def add(hash: Int, start: Int, versioned: Int): Unit = {
    if (count == starts.length) {
      hashes = Arrays.copyOf(hashes, 2 * count)
      starts = Arrays.copyOf(starts, 2 * count)
      versions = Arrays.copyOf(versions, 2 * count)
    }
    hashes(count) = hash
    starts(count) = start
    versions(count) = versioned
    count += 1
  }

  /** Of groups that are in order and agree in the bits above: the first whose `bit` is set. */
  def firstWithBit(bit: Int, from: Int, to: Int): Int = {
    var low = from
    var high = to
    while (low < high) {
      val middle = (low + high) >>> 1
      if ((hashes(middle) >>> bit & 1) == 1) high = middle else low = middle + 1
    }
    low
  }
}
