package org.apache.spark.sql.slackwater.process

import java.io.IOException
import java.net.URLDecoder
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths}
import java.nio.file.attribute.{FileAttribute, PosixFilePermissions}
import java.util.UUID

import scala.util.Try

import org.apache.spark.{Partition, SparkContext, SparkEnv, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.slackwater.protocol.Errors

/** Whether executors see the folder of the location.
  *
  * One that does not would write its part of an INSERT onto a disk of its own.
  */
private[slackwater] object SharedFolder {

  private final case class Answer(executor: String, host: String, sees: Boolean)

  /** Lets every executor that is there look for a file that this driver makes.
    *
    * Raises `SLACKWATER_LOCATION_NOT_SHARED`. Does nothing in local mode and for other locations
    * than folders. What is wrong with the folder itself, the coordinator says.
    */
  def check(context: SparkContext, location: String): Unit =
    if (!context.isLocal) {
      folderOf(location).flatMap(marked).foreach { case (marker, content) =>
        try {
          // The first job waits until there is an executor; the second asks all others.
          val first = ask(context, marker, content, Seq(Nil))
          val others = executors.collect {
            case (id, host) if !first.exists(_.executor == id) => Seq(s"executor_${host}_$id")
          }
          val blind = (first ++ ask(context, marker, content, others)).filterNot(_.sees)
          if (blind.nonEmpty) throw refused(location, blind)
        } finally Try(Files.deleteIfExists(Paths.get(marker)))
      }
    }

  private def folderOf(location: String): Option[Path] =
    if (location.startsWith("file:")) {
      // People write what no URI has: only percent signs mean something, as they do to Python.
      val path = location.stripPrefix("file:").replaceFirst("^//[^/]*", "")
      Try(Paths.get(URLDecoder.decode(path.replace("+", "%2B"), UTF_8))).toOption
    } else Option.when(location.startsWith("/"))(Paths.get(location))

  /** As the coordinator makes it, which finds it there. */
  private def ownersAlone: FileAttribute[_] =
    PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"))

  private def marked(folder: Path): Option[(String, String)] = {
    val content = UUID.randomUUID.toString
    val marker = folder.resolve(s".slackwater-shared-$content")
    try {
      Option(folder.getParent).foreach(Files.createDirectories(_))
      Files.createDirectories(folder, ownersAlone)
      Files.writeString(marker, content)
      Some(marker.toString -> content)
    } catch { case _: IOException => None }
  }

  private def executors: Seq[(String, String)] =
    SparkEnv.get.blockManager.master.getMemoryStatus.keys.toSeq
      .filterNot(_.isDriver)
      .map(manager => manager.executorId -> manager.host)

  /** One task for each entry of `places`, which names where it should run. */
  private def ask(
      context: SparkContext,
      marker: String,
      content: String,
      places: Seq[Seq[String]]
  ): Seq[Answer] =
    if (places.isEmpty) Nil
    else {
      val look = (_: Iterator[Unit]) => looked(marker, content)
      context.runJob(new TaskAt(context, places), look).toSeq.map(answered)
    }

  /** A text, since an application's serializer may refuse classes that it does not know. */
  private def looked(marker: String, content: String): String = {
    val manager = SparkEnv.get.blockManager.blockManagerId
    val found = Try(Files.readString(Paths.get(marker))).toOption
    s"${found.contains(content)} ${manager.executorId} ${manager.host}"
  }

  private def answered(text: String): Answer = text.split(" ", 3) match {
    case Array(sees, executor, host) => Answer(executor, host, sees.toBoolean)
  }

  private def refused(location: String, blind: Seq[Answer]): Exception = {
    val named = blind.distinct.sortBy(_.executor).map(a => s"${a.executor} on ${a.host}")
    Errors.user(
      "SLACKWATER_LOCATION_NOT_SHARED",
      "location" -> location,
      "executors" -> s"what the driver writes there is not seen by executor ${named.mkString(", ")}"
    )
  }
}

/** A task for each entry of `places`, which names where it should run.
  *
  * An RDD of a collection sends its elements through the application's serializer, which may refuse
  * classes that it does not know.
  */
private final class TaskAt(context: SparkContext, @transient places: Seq[Seq[String]])
    extends RDD[Unit](context, Nil) {
  override protected def getPartitions: Array[Partition] =
    places.indices.map(i => TaskAt.Numbered(i): Partition).toArray
  override protected def getPreferredLocations(split: Partition): Seq[String] = places(split.index)
  override def compute(split: Partition, task: TaskContext): Iterator[Unit] = Iterator.empty
}

private object TaskAt {
  final case class Numbered(index: Int) extends Partition
}
