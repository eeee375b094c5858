"""Reads a case's queries from tables: what the driver computes of few rows is what DuckDB answers.

The tables are Slackwater's, of a coordinator, and have what the case's tables have in the end.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import convert_exception
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from tests.fuzz import functions
from tests.fuzz.cases import LAST, Case, contents, difference, reads
from tests.fuzz.kinds import as_spark, compared, described, is_collated
from tests.fuzz.temporal import NOW
from tests.support.applications.settings import under
from tests.support.compute.declared import Declared

from slackwater.repr.relation import RelationDesc

PLANNED: Sequence[Mapping[str, str]] = (
    {},
    {"spark.sql.autoBroadcastJoinThreshold": "-1"},
    {"spark.sql.adaptive.enabled": "false"},
    {"spark.sql.adaptive.enabled": "false", "spark.sql.autoBroadcastJoinThreshold": "-1"},
)
"""Joins by a broadcast or by a merge, planned once or again when sides are known."""
_OF_VIEWS = re.compile(
    re.escape(NOW) + r"|\b(LIMIT|OFFSET) \d|\b((min|max)_by|mode|(first|last|nth)_value)\("
)


class Reads:
    """The queries of a case, in a session that has its tables."""

    def __init__(self, declared: Declared, case: Case) -> None:
        self._declared = declared
        self._case = case
        self.session = declared.new_session()
        functions.register(self.session, [view.spark for view in case.views.values()])
        self.session.sql("USE slackwater.default")
        self._rows: dict[str, tuple[list[tuple[Any, ...]], StructType]] = {}
        for name, kinds in case.tables.items():
            declared.id_of(name, described(kinds))
            present = contents(case.histories[name], LAST)
            rows = [tuple(map(as_spark, kinds.values(), row)) for row in present]
            self._rows[name] = rows, self.session.table(name).schema
            self._with_rows(self.session, name, "rows_of_case")
            self.session.sql(f"INSERT OVERWRITE {name} SELECT * FROM rows_of_case")
        self.refused: set[str] = set()

    def difference(self, name: str, wanted: Counter) -> str | None:
        """What a read finds and DuckDB does not, or the other way round.

        None also for what Spark refuses, fails at or has otherwise without Slackwater, and for what
        views alone have: temporal filters, and one order of all rows.
        """
        text = self._case.views[name].spark
        if _OF_VIEWS.search(text) or any(reads(text, each) for each in self.refused):
            self.refused.add(name)
            return None
        planned = PLANNED[len(text) % len(PLANNED)]
        found = self._read(self.session, name, planned)
        if found == wanted:
            return None
        if found == self._read_in_spark(name, planned):
            self.refused.add(name)
            return None
        told = found if isinstance(found, str) else difference(found, wanted)
        return f"{told} with {planned}"

    def _read(self, session: SparkSession, name: str, planned: Mapping[str, str]) -> Counter | str:
        """The rows, or which error Spark raises."""
        view = self._case.views[name]
        with under(session, {**view.settings, **planned}):
            try:
                session.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {view.spark}")
                return _rows(session.table(name))
            except Py4JJavaError as error:
                raised = convert_exception(error.java_exception)
                return raised.getCondition() or str(raised)

    def _read_in_spark(self, name: str, planned: Mapping[str, str]) -> Counter | str:
        """The same without Slackwater's tables."""
        session = self._declared.new_session()
        functions.register(session, [view.spark for view in self._case.views.values()])
        for table in self._case.tables:
            self._with_rows(session, table, table)
        names = list(self._case.views)
        for each in names[: names.index(name)]:
            if each not in self.refused:
                self._read(session, each, planned)
        return self._read(session, name, planned)

    def _with_rows(self, session: SparkSession, name: str, view: str) -> None:
        rows, schema = self._rows[name]
        session.createDataFrame(rows, schema, verifySchema=False).createOrReplaceTempView(view)


def _rows(frame: DataFrame) -> Counter:
    desc = RelationDesc.from_json(frame.schema.json())
    kinds = [each.type for each in desc.arrow_schema()]
    collated = [is_collated(column) for column in desc.columns]
    found: Counter = Counter()
    for row in frame.collect():
        stored = map(_as_stored, row, kinds)
        found[tuple(map(compared, stored, kinds, collated))] += 1
    return found


def _as_stored(value: Any, kind: pa.DataType) -> Any:
    """The value as Arrow gives it, whose fields have the names under which they are stored."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        if not value:
            return {field.name: None for field in kind}
        named = zip(kind, value, strict=True)
        return {field.name: _as_stored(each, field.type) for field, each in named}
    if pa.types.is_list(kind):
        return [_as_stored(each, kind.value_type) for each in value]
    if pa.types.is_map(kind):
        return {key: _as_stored(each, kind.item_type) for key, each in value.items()}
    if isinstance(value, datetime.datetime) and pa.types.is_timestamp(kind) and kind.tz:
        return value.astimezone(datetime.timezone.utc)
    return value
