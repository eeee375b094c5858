package org.apache.spark.sql.slackwater.scan

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.MissingNode
import org.apache.hadoop.fs.{FileStatus, Path}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.MultiInstanceRelation
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.QueryPlan
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes
import org.apache.spark.sql.catalyst.util.CharVarcharUtils
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.datasources._
import org.apache.spark.sql.slackwater.hold.Hold
import org.apache.spark.sql.slackwater.protocol.{ObjectStore, Wire}
import org.apache.spark.sql.slackwater.values.Stored
import org.apache.spark.sql.types.{DataType, LongType, StructType}

/** Which contents a bound scan has: two scans with equal identities have the same rows.
  *
  * `bind` is 0 where the statement names the exact time, so that a cached plan serves later
  * statements with the same time; else it tells the binds apart.
  */
private[slackwater] final case class ScanIdentity(relation: String, asOf: Long, bind: Long)

/** The parts of one relation, in the protocol's form, with the schema that the rows have, under the
  * names that its columns have in files.
  */
private[slackwater] final case class BoundParts(
    json: JsonNode,
    schema: StructType,
    hold: Option[Hold]
)

/** A collection at one time. It becomes a plan over its parts when the optimizer begins, after
  * Spark has looked for cached data.
  */
private[slackwater] final case class BoundScan(
    name: String,
    identity: ScanIdentity,
    override val output: Seq[AttributeReference],
    parts: BoundParts
) extends LeafNode
    with MultiInstanceRelation {
  override def newInstance(): LogicalPlan = copy(output = output.map(_.newInstance()))
  override def computeStats(): Statistics =
    Statistics(sizeInBytes =
      parts.json.path("files").asScala.map(_.get("size_bytes").asLong).sum + 1L
    )
  override def doCanonicalize(): LogicalPlan = BoundScan(
    "",
    identity,
    output.map(QueryPlan.normalizeExpressions(_, output)),
    BoundParts(MissingNode.getInstance, new StructType(), None)
  )
  override def simpleString(maxFields: Int): String = s"SlackwaterScan $label"
  def label: String = s"$name as of ${identity.asOf}"
}

/** Replaces bound scans by plans over their parts.
  *
  * Spark prunes columns before this rule runs, and leaves the projection above the leaf. It could
  * not prune below a consolidation, which groups by every column that it has.
  */
private[slackwater] final case class ExpandScans(session: SparkSession) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformDown {
    case project @ Project(_, scan: BoundScan) =>
      project.copy(child = PartScan.snapshot(session, scan, project.references))
    case project @ Project(_, filter @ Filter(_, scan: BoundScan)) =>
      val wanted = project.references ++ filter.references
      project.copy(child = filter.copy(child = PartScan.snapshot(session, scan, wanted)))
    case scan: BoundScan => PartScan.snapshot(session, scan, scan.outputSet)
  }
}

/** Plans over the parts of a collection. */
private[slackwater] object PartScan {

  /** The rows at the scan's time, under the attributes that the statement knows them by; of its
    * columns, at least the `wanted` ones.
    */
  def snapshot(session: SparkSession, scan: BoundScan, wanted: AttributeSet): LogicalPlan = {
    val parts = scan.parts
    val asOf = scan.identity.asOf
    val timed = parts.json.path("time_filter").asBoolean
    val files = Files
      .of(parts.json)
      .filter(file => !timed || file.uniform.forall(_.time <= asOf))
    val embedded = files.filter(_.uniform.isEmpty)
    val uniform = files.filter(_.uniform.isDefined)
    def inline(schema: StructType): Seq[InlineUpdate] =
      InlineUpdates.of(parts, schema).filter(update => !timed || update.time <= asOf)
    if (!parts.json.path("retractions").asBoolean) {
      val sources = new Sources(session, scan.label, parts)
      val scans = sources.rows(uniform) ++ sources.rows(embedded, Option.when(timed)(asOf))
      val rows = union(scans ++ sources.local(inline(parts.schema).map(_.row), scans.isEmpty))
      project(rows, scan.output)
    } else {
      val output = scan.output.filter(wanted.contains)
      val narrowed = parts.copy(schema = concerned(parts.schema, output))
      val sources = new Sources(session, scan.label, narrowed)
      val until = Option.when(timed)(asOf)
      val rows = Consolidate.rows(sources, uniform, embedded, until, inline(narrowed.schema))
      project(rows, output)
    }
  }

  /** The columns of `schema` that `output` is made of.
    *
    * Diffs add up, so updates that are first cut to some columns and then consolidated are the same
    * multiset as consolidated rows that are cut.
    */
  private def concerned(schema: StructType, output: Seq[AttributeReference]): StructType = {
    val names = output.map(a => Stored.column(a.name)).toSet
    // Another name is the whole row, as row-level changes want it.
    if (!names.subsetOf(schema.names.toSet)) schema
    else StructType(schema.filter(field => names(field.name)))
  }

  /** The updates of a binding's relation, not consolidated: its columns, `__time`, `__diff`; under
    * the names of files, as `schema` has them.
    */
  def updates(
      session: SparkSession,
      name: String,
      schema: StructType,
      json: JsonNode
  ): LogicalPlan = {
    val lower = Wire.longOption(json.get("lower"))
    val upper = Wire.longOption(json.get("upper"))
    val advanceTo = Wire.longOption(json.get("advance_to"))
    def wanted(time: Long): Boolean = lower.forall(_ <= time) && upper.forall(time < _)

    val sources = new Sources(session, name, BoundParts(json, schema, None))
    val files = Files.of(json).filter(_.uniform.forall(u => wanted(u.time)))
    val (uniform, embedded) = files.partition(_.uniform.isDefined)
    val scans = sources.updates(uniform) ++ sources.updates(embedded).map { scan =>
      val time = attribute(scan, Wire.TimeColumn)
      val bounds = lower.map(l => GreaterThanOrEqual(time, Literal(l))) ++
        upper.map(u => LessThan(time, Literal(u)))
      bounds.reduceOption[Expression](And).fold(scan)(Filter(_, scan))
    }
    val inline =
      InlineUpdates.of(BoundParts(json, schema, None), schema).filter(u => wanted(u.time))
    val all = union(scans ++ sources.localUpdates(inline, scans.isEmpty))
    advanceTo.fold(all) { to =>
      val columns = all.output.map {
        case a if a.name == Wire.TimeColumn =>
          Alias(Greatest(Seq(a, Literal(to))), Wire.TimeColumn)()
        case a => a
      }
      Project(columns, all)
    }
  }

  def attribute(plan: LogicalPlan, name: String): Attribute =
    plan.output.find(_.name == name).get

  def union(plans: Seq[LogicalPlan]): LogicalPlan =
    if (plans.size == 1) plans.head else Union(plans)

  private def project(rows: LogicalPlan, output: Seq[AttributeReference]): LogicalPlan = {
    val byName = rows.output.map(a => a.name -> a).toMap
    val columns = output.map { wanted =>
      val value = byName.getOrElse(Stored.column(wanted.name), wholeRow(rows, wanted.dataType))
      Alias(value, wanted.name)(wanted.exprId, wanted.qualifier, Some(wanted.metadata))
    }
    Project(columns, rows)
  }

  private def wholeRow(rows: LogicalPlan, dataType: DataType): Expression = {
    val names = dataType.asInstanceOf[StructType].fieldNames
    CreateNamedStruct(rows.output.zip(names).flatMap { case (a, name) => Seq(Literal(name), a) })
  }
}

/** One file of a relation. */
private[slackwater] final case class PartFile(
    status: FileStatus,
    rows: Long,
    uniform: Option[Uniform]
)

/** The time and the diff that all rows of a file have. */
private[slackwater] final case class Uniform(time: Long, diff: Long)

private[slackwater] object Files {
  def of(relation: JsonNode): Seq[PartFile] =
    relation.path("files").asScala.toIndexedSeq.map { file =>
      val status = new FileStatus(
        file.get("size_bytes").asLong,
        false,
        0,
        0L,
        file.get("modified_ms").asLong,
        ObjectStore.path(file.get("uri").asText)
      )
      val uniform = for {
        time <- Wire.longOption(file.get("time"))
        diff <- Wire.longOption(file.get("diff"))
      } yield Uniform(time, diff)
      PartFile(status, file.path("rows").asLong, uniform)
    }
}

/** One inline update. */
private[slackwater] final case class InlineUpdate(row: UnsafeRow, time: Long, diff: Long)

private[slackwater] object InlineUpdates {

  /** The updates with the columns of `schema`, which are some of the parts' columns. */
  def of(parts: BoundParts, schema: StructType): Seq[InlineUpdate] = {
    val width = parts.schema.length
    val whole = Wire.updateSchema(parts.schema)
    val project = UnsafeProjection.create(schema.fields.toIndexedSeq.map { field =>
      BoundReference(parts.schema.fieldIndex(field.name), field.dataType, nullable = true)
    })
    Wire.decode(Wire.inlineStreams(parts.json), whole).map { update =>
      InlineUpdate(project(update).copy(), update.getLong(width), update.getLong(width + 1))
    }
  }
}

/** The leaves that parts become. */
private[slackwater] final class Sources(
    session: SparkSession,
    label: String,
    parts: BoundParts
) {
  val schema: StructType = parts.schema

  /** The rows of `files`, which must be all uniform or all with times inside. */
  def rows(files: Seq[PartFile], until: Option[Long] = None): Seq[LogicalPlan] =
    if (files.isEmpty) Nil
    else if (files.head.uniform.isDefined) Seq(scan(files, schema, new StructType()))
    else {
      val all = scan(files, Wire.updateSchema(schema), new StructType())
      val filtered = until.fold[LogicalPlan](all) { time =>
        Filter(LessThanOrEqual(PartScan.attribute(all, Wire.TimeColumn), Literal(time)), all)
      }
      Seq(Project(filtered.output.take(schema.length), filtered))
    }

  /** The same with the columns `__time` and `__diff`. */
  def updates(files: Seq[PartFile]): Seq[LogicalPlan] =
    if (files.isEmpty) Nil
    else if (files.head.uniform.isDefined) Seq(scan(files, schema, Sources.updateColumns))
    else Seq(scan(files, Wire.updateSchema(schema), new StructType()))

  private def scan(files: Seq[PartFile], data: StructType, constants: StructType): LogicalPlan = {
    val index = new PartIndex(files, constants, parts.hold)
    val stored = Stored.schema(data)
    val format = new PartFormat(label)
    val relation = HadoopFsRelation(index, constants, stored, None, format, options(files))(session)
    val read = LogicalRelation(relation)
    if (stored == data) read
    else {
      val columns = read.output.take(data.length).zip(data).map { case (column, field) =>
        if (column.dataType == field.dataType) column
        else Alias(Stored.restored(column, field.dataType), field.name)()
      }
      Project(columns ++ read.output.drop(data.length), read)
    }
  }

  private def options(files: Seq[PartFile]): Map[String, String] = {
    val uri = ObjectStore.uri(files.head.status.getPath)
    Sources.options ++ ObjectStore.options(session.sparkContext, uri)
  }

  /** Rows that the binding carried; nothing where there are none, unless they are `needed`. */
  def local(rows: Seq[InternalRow], needed: Boolean): Seq[LogicalPlan] =
    if (rows.isEmpty && !needed) Nil else Seq(InlineRows(label, toAttributes(schema), rows))

  def localUpdates(updates: Seq[InlineUpdate], needed: Boolean): Seq[LogicalPlan] =
    if (updates.isEmpty && !needed) Nil
    else {
      val whole = Wire.updateSchema(schema)
      val join = UnsafeProjection.create(whole)
      val extra = new GenericInternalRow(2)
      val joined = new JoinedRow()
      val rows = updates.map { update =>
        extra.setLong(0, update.time)
        extra.setLong(1, update.diff)
        join(joined(update.row, extra)).copy()
      }
      Seq(InlineRows(label, toAttributes(whole), rows))
    }
}

private[slackwater] object Sources {

  /** The types that Spark computes with for columns of `schema`. */
  def stored(schema: StructType): StructType =
    CharVarcharUtils.replaceCharVarcharWithStringInSchema(schema)

  val updateColumns: StructType = Wire.updateSchema(new StructType())

  /** A collection's files are all there and whole: settings that skip such errors do not apply. */
  val options: Map[String, String] = Map(
    "ignoreMissingFiles" -> "false",
    "ignoreCorruptFiles" -> "false",
    "mergeSchema" -> "false",
    "datetimeRebaseMode" -> "CORRECTED",
    "int96RebaseMode" -> "CORRECTED"
  )
}

/** The files of a binding. Nothing is listed; `__time` and `__diff` are constants of each file. */
private[slackwater] final class PartIndex(
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
