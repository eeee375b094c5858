package org.apache.spark.sql.slackwater.arrangements

import java.io.IOException
import java.nio.{Buffer, ByteBuffer, MappedByteBuffer}
import java.nio.channels.FileChannel
import java.nio.file.{Files, Path, StandardOpenOption}
import java.util.UUID

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

private[arrangements] object SystemMemory extends Regions {
  override def take(wanted: Long): Option[Region] =
    Some(new Region {
      override val address: Long = Platform.allocateMemory(wanted)
      override def bytes: Long = wanted
      override def close(): Unit = Platform.freeMemory(address)
    })
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
      catch { case _: IOException => None }

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
