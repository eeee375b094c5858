package org.apache.spark.sql.slackwater.arrangements

import java.io.IOException
import java.lang.ref.Cleaner
import java.nio.{Buffer, ByteBuffer, MappedByteBuffer}
import java.nio.channels.{ClosedByInterruptException, FileChannel}
import java.nio.file.{Files, Path, StandardOpenOption}
import java.util.UUID
import java.util.concurrent.atomic.AtomicLong

import org.apache.spark.storage.StorageUtils
import org.apache.spark.unsafe.Platform

/** A stretch of addresses that can be read and written until it is closed. */
private[arrangements] trait Region {
  def address: Long
  def bytes: Long
  def close(): Unit
}

/** Where slabs come from. */
private[arrangements] trait Regions {

  /** None: there is no more. */
  def take(bytes: Long): Option[Region]
}

/** Memory of the process outside the heap. What nobody closes is given back when nobody refers to it
  * any more, as after an application has ended whose driver goes on with another one.
  */
private[arrangements] object SystemMemory extends Regions {
  private val cleaner = Cleaner.create()
  private val taken = new AtomicLong

  /** In bytes. */
  def used: Long = taken.get

  override def take(wanted: Long): Option[Region] = {
    val allocated = new Allocated(Platform.allocateMemory(wanted), wanted)
    taken.addAndGet(wanted)
    Some(new OwnMemory(allocated))
  }

  private final class OwnMemory(allocated: Allocated) extends Region {
    private val freeing = cleaner.register(this, allocated)
    override def address: Long = allocated.address
    override def bytes: Long = allocated.bytes
    override def close(): Unit = freeing.clean()
  }

  /** Must not refer to the region, or nobody would ever free it. */
  private final class Allocated(val address: Long, val bytes: Long) extends Runnable {
    override def run(): Unit = {
      Platform.freeMemory(address)
      val _ = taken.addAndGet(-bytes)
    }
  }
}

/** Files below `directory`, mapped: the system keeps in memory what of them is used, and has room for.
  *
  * A file has no name any more once it is open, so that nothing is left of it however this process
  * ends. It is written before it is mapped: a disk that is full says so then, and not with a signal
  * at the first write into a page that has no place.
  */
private[arrangements] final class MappedFiles(directory: Path) extends Regions {
  override def take(bytes: Long): Option[Region] =
    if (bytes > Int.MaxValue) None
    else
      try Some(mapped(bytes))
      catch {
        // Somebody wants this thread to end, which says nothing of the disk.
        case ended: ClosedByInterruptException =>
          throw new InterruptedException().initCause(ended)
        case _: IOException => None
      }

  private def mapped(bytes: Long): Region = {
    Files.createDirectories(directory)
    val channel = FileChannel.open(
      directory.resolve(UUID.randomUUID.toString),
      StandardOpenOption.CREATE_NEW,
      StandardOpenOption.READ,
      StandardOpenOption.WRITE,
      StandardOpenOption.DELETE_ON_CLOSE
    )
    try {
      MappedFiles.fill(channel, bytes)
      new MappedFile(channel.map(FileChannel.MapMode.READ_WRITE, 0, bytes))
    } finally channel.close()
  }
}

private[arrangements] object MappedFiles {
  private val pieceBytes = 1 << 20

  private def fill(channel: FileChannel, bytes: Long): Unit = {
    val piece = ByteBuffer.allocateDirect(pieceBytes)
    var left = bytes
    while (left > 0) {
      piece.clear().limit(math.min(left, pieceBytes).toInt)
      while (piece.hasRemaining) left -= channel.write(piece)
    }
  }
}

private final class MappedFile(buffer: MappedByteBuffer) extends Region {
  override val address: Long = MappedFile.addressField.getLong(buffer)
  override val bytes: Long = buffer.capacity
  override def close(): Unit = StorageUtils.dispose(buffer)
}

private object MappedFile {

  /** Spark opens java.nio to itself, see org.apache.spark.launcher.JavaModuleOptions. */
  private val addressField = {
    val field = classOf[Buffer].getDeclaredField("address")
    field.setAccessible(true)
    field
  }
}
