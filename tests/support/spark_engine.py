"""The engine of dataflows over a plain PySpark session, without the shim."""

from __future__ import annotations

import base64
import contextlib
import json
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import convert_exception
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from slackwater.compute.engine import WrittenFile
from slackwater.compute.relations import relation_json
from slackwater.persist.blobs import file_uri, local_path
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, RelationDesc
from slackwater.spark.session import jar_path


def new_session() -> SparkSession:
    """A session for many small queries: compiling them would take longer than running them.

    It has the shim's jar, if there is one, for the sessions that later share its JVM.
    """
    builder = SparkSession.builder.master("local[1]")
    with contextlib.suppress(FileNotFoundError):
        builder = builder.config("spark.jars", str(jar_path()))
    return (
        builder.config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.autoBroadcastJoinThreshold", "-1")
        .config("spark.sql.join.preferSortMergeJoin", "false")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )


class SparkEngine:
    """`Engine` without analyze. Counts what it runs, so that tests can tell ticks from advances."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.queries: list[str] = []
        self._empty: dict[str, RelationDesc] = {}

    def schema_of(self, query: str) -> RelationDesc:
        return RelationDesc.from_json(self._spark.sql(query).schema.json())

    def empty_view(self, name: str, desc: RelationDesc) -> None:
        if self._empty.get(name) == desc:
            return
        self._empty[name] = desc
        schema = StructType.fromJson(json.loads(desc.to_json()))
        self._spark.createDataFrame([], schema).createOrReplaceTempView(name)

    def register(self, view_name, desc, relation):
        schema = desc.update_schema()
        tables = [_file(entry, schema) for entry in relation["files"]]
        for text in relation["inline"]:
            with pa.ipc.open_stream(base64.b64decode(text)) as stream:
                tables.append(stream.read_all().cast(schema))
        table = pa.concat_tables(tables) if tables else schema.empty_table()
        times = table.column(TIME_COLUMN)
        if relation["lower"] is not None:
            table = table.filter(pc.greater_equal(times, relation["lower"]))
        if relation["upper"] is not None:
            table = table.filter(pc.less(table.column(TIME_COLUMN), relation["upper"]))
        if relation["advance_to"] is not None:
            raised = pc.max_element_wise(
                table.column(TIME_COLUMN), pa.scalar(relation["advance_to"], pa.int64())
            )
            position = schema.get_field_index(TIME_COLUMN)
            table = table.set_column(position, schema.field(position), raised)
        updates = json.loads(desc.to_json())
        updates["fields"] += [
            {"name": name, "type": "long", "nullable": False, "metadata": {}}
            for name in (TIME_COLUMN, DIFF_COLUMN)
        ]
        frame = self._spark.createDataFrame(table, StructType.fromJson(updates))
        # One partition needs no exchange before a join or an aggregate.
        frame.coalesce(1).createOrReplaceTempView(view_name)

    def under(self, settings):
        return self

    def unregister(self, view_names):
        for name in view_names:
            self._spark.catalog.dropTempView(name)

    def collect(self, sql, catalog=None, namespace=None):
        self.queries.append(sql)
        try:
            return self._spark.sql(sql).toArrow()
        except PySparkException as error:
            raise _translated(error) from None
        except Py4JJavaError as error:
            # What fails in a job below a broadcast comes unconverted.
            raise _translated(_innermost(error.java_exception)) from None

    def collect_small(self, sql, views):
        for view in views:
            relation = relation_json(
                view.parts,
                view.desc,
                lower=view.lower,
                upper=view.upper,
                advance_to=view.advance_to,
            )
            self.register(view.name, view.desc, relation)
        try:
            return self.collect(sql)
        finally:
            self.unregister([view.name for view in views])

    def write(self, sql, directory, catalog=None, namespace=None):
        self.queries.append(sql)
        target = local_path(directory) / uuid.uuid4().hex
        try:
            self._spark.sql(sql).write.parquet(str(target))
        except PySparkException as error:
            raise _translated(error) from None
        return [_written(path) for path in target.glob("*.parquet")]


def _file(entry, schema):
    table = pq.read_table(local_path(entry["uri"]), partitioning=None)
    if entry["time"] is not None:
        for name in ("time", "diff"):
            values = pa.repeat(pa.scalar(entry[name], pa.int64()), table.num_rows)
            table = table.append_column(f"__{name}", values)
    return table.select(schema.names).cast(schema)


def _written(path: Path) -> WrittenFile:
    table = pq.read_table(path, columns=[TIME_COLUMN, DIFF_COLUMN], partitioning=None)
    times = pc.min_max(table.column(TIME_COLUMN)).as_py()
    status = path.stat()
    return WrittenFile(
        uri=file_uri(path),
        rows=table.num_rows,
        size_bytes=status.st_size,
        modified_ms=status.st_mtime_ns // 1_000_000,
        min_time=times["min"] or 0,
        max_time=times["max"] or 0,
        has_retractions=bool(pc.any(pc.less(table.column(DIFF_COLUMN), 0)).as_py()),
    )


def _innermost(exception) -> PySparkException:
    while exception.getCause() is not None:
        exception = exception.getCause()
    return convert_exception(exception)


def _translated(error: PySparkException) -> SlackwaterError:
    return SlackwaterError(
        error.getCondition() or "UNKNOWN", error.getSqlState() or "XX000", str(error)[:2000], {}
    )
