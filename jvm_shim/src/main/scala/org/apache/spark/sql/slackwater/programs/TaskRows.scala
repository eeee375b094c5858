package org.apache.spark.sql.slackwater.programs

import java.io.{
  ByteArrayInputStream,
  ByteArrayOutputStream,
  DataInputStream,
  EOFException,
  InputStream
}
import java.nio.ByteBuffer

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.{SparkContext, SparkEnv, SparkException, TaskContext}
import org.apache.spark.internal.config.MAX_RESULT_SIZE
import org.apache.spark.io.CompressionCodec
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.slackwater.arrangements.Arrangement
import org.apache.spark.sql.slackwater.scan.execution.DriverTask
import org.apache.spark.storage.{BlockId, BroadcastBlockId, StorageLevel}
import org.apache.spark.unsafe.Platform
import org.apache.spark.util.TaskFailureListener
import org.apache.spark.util.io.ChunkedByteBuffer

/** Rows by key that tasks have made, of which the driver holds a few at a time. To be
  * closed.
  *
  * A task brings what is little with its result, all tasks together no more than a share of
  * `spark.driver.maxResultSize` and of the driver's heap. More than that it leaves as blocks on the
  * disk of its executor, from where the driver reads one after the other. A block has rows of one
  * range of the hashes of keys, or of a few: so they can be read in the order of hashes.
  *
  * @param pieces
  *   in the order of tasks, and for each task in the order in which it made them
  */
private[slackwater] final class TaskRows private (
    keyFields: Int,
    rowFields: Int,
    pieces: IndexedSeq[TaskRows.Piece],
    release: () => Unit
) extends AutoCloseable {
  import TaskRows._

  /** How many first bits of the hashes `ranges` goes by. Little is not worth an order. */
  val rangeBits: Int = if (pieces.forall(_.bytes.isLeft)) 0 else RangeBits

  /** The rows whose hashes begin with the same bits, range by range. Each may be read more than once.
    */
  def ranges: Iterator[HashRange] =
    if (rangeBits == 0) Iterator.single(new HashRange(0, Ranges))
    else Iterator.range(0, Ranges).map(i => new HashRange(i, i + 1))

  /** All rows, in the order in which tasks made them. */
  def inOrder: Iterator[(UnsafeRow, UnsafeRow)] =
    pieces.iterator.flatMap(piece => new Entries(opened(piece), keyFields, rowFields))

  override def close(): Unit = release()

  final class HashRange(from: Int, until: Int) {
    private val own = pieces.filter(piece => piece.from < until && piece.until > from)

    /** About how many bytes its rows have. */
    def size: Long = own.iterator.map { piece =>
      val share = math.min(piece.until, until) - math.max(piece.from, from)
      piece.size * share / (piece.until - piece.from)
    }.sum

    /** Keys and rows, valid until the next ones. */
    def rows: Iterator[(UnsafeRow, UnsafeRow)] = own.iterator.flatMap { piece =>
      val all = new Entries(opened(piece), keyFields, rowFields)
      if (piece.from >= from && piece.until <= until) all
      else all.filter { case (key, _) => from <= rangeOf(key) && rangeOf(key) < until }
    }
  }

  private def opened(piece: Piece): InputStream = {
    val bytes = piece.bytes.fold(identity, blockOf)
    codec.compressedInputStream(new ByteArrayInputStream(bytes))
  }
}

private[slackwater] object TaskRows {

  /** The first bits of a hash say the range. */
  private val RangeBits = 6
  private val Ranges = 1 << RangeBits

  /** What a task holds before it puts rows on its disk, and of one range. */
  private val MostHeld = 16L << 20
  private val MostOfRange = 2 << 20

  /** Blocks are not made smaller than this for the sake of an order. */
  private val LeastOfBlock = 64 << 10

  /** What all tasks together bring with their results, whatever the limits of the driver are. */
  private val MostDirect = 16L << 20

  /** Rows of ranges `from` until `until`, compressed.
    *
    * @param size
    *   before that
    * @param bytes
    *   themselves, or the block that has them
    */
  private final case class Piece(
      from: Int,
      until: Int,
      size: Long,
      bytes: Either[Array[Byte], BlockId]
  )

  /** Keys and rows that `entries` makes of the partitions of a plan: in a job, or in this thread where
    * the plan makes few rows of few that are in the driver.
    */
  def by(plan: SparkPlan, keyFields: Int, rowFields: Int)(
      entries: Iterator[InternalRow] => Iterator[(UnsafeRow, UnsafeRow)]
  ): TaskRows = {
    val context = plan.session.sparkContext
    // Blocks of a broadcast go when it goes, wherever they are, and whoever put them there.
    val owner = context.broadcast(true)
    val id = owner.id
    def made(direct: Long, task: TaskContext, partition: Iterator[InternalRow]): Seq[Piece] = {
      val making = new Making(id, task, direct)
      entries(partition).foreach { case (key, row) => making.add(key, row) }
      making.finished()
    }
    def ofJob(rows: RDD[InternalRow]): Seq[Piece] = {
      val direct = directBytes(context, rows.getNumPartitions)
      def packed(task: TaskContext, partition: Iterator[InternalRow]): Array[Byte] =
        SparkEnv.get.closureSerializer
          .newInstance()
          .serialize(made(direct, task, partition))
          .array()
      context.runJob(rows, packed(_, _)).toSeq.flatMap(unpacked)
    }
    try {
      val here = DriverTask.partitions(plan)(made(directBytes(context, 1), _, _))
      val pieces = here.fold(ofJob, _.flatten).toIndexedSeq
      new TaskRows(keyFields, rowFields, pieces, () => owner.destroy(blocking = false))
    } catch {
      case failure: Throwable =>
        owner.destroy(blocking = false)
        throw failure
    }
  }

  /** Gives the rows of a plan to `take`, in their order; each is valid until the next one. */
  def of[A](plan: SparkPlan)(take: Iterator[UnsafeRow] => A): A = {
    val (schema, none) = (plan.schema, noRow)
    val made = by(plan, 0, schema.length) { rows =>
      val asUnsafe = UnsafeProjection.create(schema)
      rows.map(row => (none, asUnsafe(row)))
    }
    try take(made.inOrder.map(_._2))
    finally made.close()
  }

  private def noRow: UnsafeRow = {
    val row = new UnsafeRow(0)
    row.pointTo(Array.emptyByteArray, 0)
    row
  }

  /** How much one of so many tasks may bring with its result, beside what every result has. */
  private def directBytes(context: SparkContext, tasks: Int): Long = {
    val limit = context.getConf.get(MAX_RESULT_SIZE)
    val all =
      Seq(MostDirect, Runtime.getRuntime.maxMemory / 32) ++ Option.when(limit > 0)(limit / 4)
    all.min / math.max(1, tasks)
  }

  private def unpacked(bytes: Array[Byte]): Seq[Piece] =
    SparkEnv.get.closureSerializer
      .newInstance()
      .deserialize[Seq[Piece]](ByteBuffer.wrap(bytes), Thread.currentThread.getContextClassLoader)

  private def codec: CompressionCodec = CompressionCodec.createCodec(SparkEnv.get.conf)

  private def rangeOf(key: UnsafeRow): Int = Arrangement.hash(key) >>> (32 - RangeBits)

  /** A block of an executor. Raises SparkException when that has gone, and all with it. */
  private def blockOf(id: BlockId): Array[Byte] = {
    val blocks = SparkEnv.get.blockManager
    blocks.getLocalBytes(id) match {
      case Some(data) =>
        try bytesOf(data.toByteBuffer())
        finally {
          data.dispose()
          blocks.releaseLock(id)
        }
      case None =>
        val found = blocks.getRemoteBytes(id)
        found.map(_.toArray).getOrElse(throw new SparkException(s"$id is lost"))
    }
  }

  private def bytesOf(buffer: ByteBuffer): Array[Byte] = {
    val bytes = new Array[Byte](buffer.remaining)
    buffer.get(bytes)
    bytes
  }

  /** What one task makes. */
  private final class Making(owner: Long, task: TaskContext, direct: Long) {
    private val held = Array.fill(Ranges)(new Held)
    private val pieces = ArrayBuffer.empty[Piece]
    private val blocks = ArrayBuffer.empty[BlockId]
    private var size = 0L

    task.addTaskFailureListener(new TaskFailureListener {
      override def onTaskFailure(context: TaskContext, error: Throwable): Unit =
        blocks.foreach(SparkEnv.get.blockManager.removeBlock(_))
    })

    def add(key: UnsafeRow, row: UnsafeRow): Unit = {
      val range = rangeOf(key)
      size += held(range).add(key, row)
      if (held(range).size > MostOfRange) putDown(range, range + 1)
      else if (size > MostHeld) {
        val largest = held.indices.maxBy(held(_).size)
        putDown(largest, largest + 1)
      }
    }

    /** What is held last is brought, if it is little and everything. */
    def finished(): Seq[Piece] = {
      val left = groups.map { case (from, until) =>
        (from, until, sizeOf(from, until), compressed(from, until))
      }
      val isLittle = pieces.isEmpty && left.iterator.map(_._4.length.toLong).sum <= direct
      left.foreach { case (from, until, bytes, packed) =>
        val where = if (isLittle) Left(packed) else Right(block(packed))
        pieces += Piece(from, until, bytes, where)
      }
      pieces.toSeq
    }

    /** Neighbours of which each but the last has enough for a block. */
    private def groups: Seq[(Int, Int)] = {
      val found = ArrayBuffer.empty[(Int, Int)]
      var from = 0
      for (until <- 1 to Ranges) {
        val bytes = sizeOf(from, until)
        if (bytes >= LeastOfBlock || (until == Ranges && bytes > 0)) {
          found += ((from, until))
          from = until
        }
      }
      found.toSeq
    }

    private def sizeOf(from: Int, until: Int): Long =
      held.iterator.slice(from, until).map(_.size.toLong).sum

    private def putDown(from: Int, until: Int): Unit = {
      val bytes = sizeOf(from, until)
      pieces += Piece(from, until, bytes, Right(block(compressed(from, until))))
      size -= bytes
    }

    private def compressed(from: Int, until: Int): Array[Byte] = {
      val out = new ByteArrayOutputStream
      val stream = codec.compressedOutputStream(out)
      held.slice(from, until).foreach(_.moveTo(stream))
      stream.close()
      out.toByteArray
    }

    private def block(bytes: Array[Byte]): BlockId = {
      task.killTaskIfInterrupted()
      val id = BroadcastBlockId(owner, s"rows_${task.taskAttemptId()}_${blocks.size}")
      blocks += id
      val put = SparkEnv.get.blockManager
        .putBytes[Any](id, new ChunkedByteBuffer(ByteBuffer.wrap(bytes)), StorageLevel.DISK_ONLY)
      if (!put) throw new SparkException(s"$id cannot be stored")
      id
    }
  }

  /** Entries of one range: two lengths, the key, the row. */
  private final class Held {
    private var bytes = Array.emptyByteArray
    private var end = 0

    def size: Int = end

    /** How many bytes that takes. */
    def add(key: UnsafeRow, row: UnsafeRow): Int = {
      val (keyBytes, rowBytes) = (key.getSizeInBytes, row.getSizeInBytes)
      val taken = Math.addExact(8 + keyBytes, rowBytes)
      val needed = Math.addExact(end, taken)
      if (needed > bytes.length)
        bytes = java.util.Arrays.copyOf(bytes, math.max(needed, math.max(1024, 2 * end)))
      val at = Platform.BYTE_ARRAY_OFFSET + end
      Platform.putInt(bytes, at, keyBytes)
      Platform.putInt(bytes, at + 4, rowBytes)
      key.writeToMemory(bytes, at + 8)
      row.writeToMemory(bytes, at + 8 + keyBytes)
      end = needed
      taken
    }

    def moveTo(out: java.io.OutputStream): Unit = {
      out.write(bytes, 0, end)
      bytes = Array.emptyByteArray
      end = 0
    }
  }

  /** Keys and rows of a stream, valid until the next ones. */
  private final class Entries(stream: InputStream, keyFields: Int, rowFields: Int)
      extends Iterator[(UnsafeRow, UnsafeRow)] {
    private val in = new DataInputStream(stream)
    private val lengths = new Array[Byte](8)
    private val key = new UnsafeRow(keyFields)
    private val row = new UnsafeRow(rowFields)
    private val entry = (key, row)
    private var bytes = new Array[Byte](1024)
    private var isRead = false
    private var isAtEnd = false

    override def hasNext: Boolean = {
      if (!isRead && !isAtEnd) {
        val first = in.read()
        if (first < 0) {
          isAtEnd = true
          in.close()
        } else {
          lengths(0) = first.toByte
          in.readFully(lengths, 1, 7)
          isRead = true
        }
      }
      isRead
    }

    override def next(): (UnsafeRow, UnsafeRow) = {
      if (!hasNext) throw new EOFException
      val keyBytes = Platform.getInt(lengths, Platform.BYTE_ARRAY_OFFSET)
      val rowBytes = Platform.getInt(lengths, Platform.BYTE_ARRAY_OFFSET + 4)
      val all = keyBytes + rowBytes
      if (all > bytes.length) bytes = new Array[Byte](math.max(all, 2 * bytes.length))
      in.readFully(bytes, 0, all)
      key.pointTo(bytes, Platform.BYTE_ARRAY_OFFSET, keyBytes)
      row.pointTo(bytes, Platform.BYTE_ARRAY_OFFSET + keyBytes, rowBytes)
      isRead = false
      entry
    }
  }
}
