package org.apache.spark.sql.slackwater.scan.datasources

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.catalyst.expressions.{
  And,
  AttributeReference,
  BasePredicate,
  BoundReference,
  Expression,
  GenericInternalRow,
  Literal,
  Predicate
}
import org.apache.spark.sql.execution.datasources._
import org.apache.spark.sql.slackwater.hold.Hold
import org.apache.spark.sql.types.{LongType, StructType}

/** The files of a binding. Nothing is listed; `__time` and `__diff` are constants of each file.
  *
  * @param relation
  *   the id of the collection; empty where the files are those of none
  */
private[slackwater] final class PartIndex(
    val relation: String,
    val files: Seq[PartFile],
    override val partitionSchema: StructType,
    hold: Option[Hold]
) extends FileIndex {

  override def rootPaths: Seq[Path] = files.map(_.status.getPath)
  override def inputFiles: Array[String] = rootPaths.map(_.toUri.toString).toArray
  override def refresh(): Unit = ()
  override def sizeInBytes: Long = files.map(_.status.getLen).sum

  private val constants = partitionSchema.nonEmpty

  override def listFiles(
      partitionFilters: Seq[Expression],
      dataFilters: Seq[Expression]
  ): Seq[PartitionDirectory] = {
    if (relation.nonEmpty) hold.foreach(_.strategy.otherwise())
    val wanted = predicate(partitionFilters)
    files
      .groupBy(file => if (constants) file.uniform else None)
      .toSeq
      .map { case (uniform, group) =>
        PartitionDirectory(
          new HeldValues(uniform, hold),
          group.map(file => FileStatusWithMetadata(file.status))
        )
      }
      .filter(directory => wanted.eval(directory.values))
  }

  private def predicate(filters: Seq[Expression]): BasePredicate = {
    val bound = filters.reduceOption(And).getOrElse(Literal.TrueLiteral).transform {
      case a: AttributeReference =>
        val at = partitionSchema.fieldIndex(a.name)
        BoundReference(at, LongType, nullable = false)
    }
    Predicate.createInterpreted(bound)
  }

  override def equals(other: Any): Boolean = other match {
    case that: PartIndex => files == that.files && partitionSchema == that.partitionSchema
    case _               => false
  }
  override def hashCode: Int = files.hashCode
  override def toString: String = s"${files.size} parts"
}

/** A file's constants. Tasks' descriptions refer to it, so an RDD keeps its hold alive. */
private[slackwater] final class HeldValues(
    uniform: Option[Uniform],
    @transient val hold: Option[Hold]
) extends GenericInternalRow(
      uniform.fold(Array.empty[Any])(u => Array[Any](u.time, u.diff))
    )
