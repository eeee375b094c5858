"""Spark's built-in functions, called as their documentation calls them, over columns.

The literals of an example are values of a collection, with rows in which some or all are NULL; what
an example has in VALUES is a collection too, whole and by groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.inputs.twin import AT_ONCE, Found, Twin
from tests.support.compute.declared import Declared

from slackwater.repr.relation import RelationDesc

_EXAMPLE = re.compile(r"^\s*> (SELECT.*?);\s*$", re.MULTILINE | re.DOTALL)
_LITERAL = re.compile(
    r"""(?:\b(?:date|timestamp|timestamp_ntz|timestamp_ltz|x|r)\s*)?"""
    r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    r"""|(?<![\w.])\d+(?:\.\d*)?(?:e[+-]?\d+)?(?:bd|[lsydf])?\b""",
    re.IGNORECASE,
)
_VALUES = re.compile(
    r"FROM\s+VALUES\s+(?P<rows>.+)\s+(?:AS\s+)?(?P<name>\w+)\s*\((?P<columns>[\w\s,]+)\)"
    r"(?P<rest>.*)$",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Call:
    """A query of one function; `rows` are those of the collection that it reads, if it reads one.

    `{source}` in `query` stands for that collection.
    """

    function: str
    query: str
    rows: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class FunctionShare:
    """Every so-many-th of the functions, from `number` on."""

    number: int
    of: int

    @property
    def name(self) -> str:
        return f"functions-{self.number + 1}-of-{self.of}"

    def examine(self, declared: Declared, folder: Path) -> Found:
        """Labels are by function."""
        twin = Twin(declared, folder, {})
        try:
            documented = sorted(examples(twin.session).items())[self.number :: self.of]
            return examined(twin, dict(documented))
        finally:
            twin.close()


def examined(twin: Twin, documented: Mapping[str, Sequence[str]]) -> Found:
    """What calls of these functions come to."""
    found = Found()
    calls: list[Call] = []
    for function, texts in documented.items():
        made = [call for text in texts for call in _calls(twin.session, function, text)]
        if not made:
            found.labels.append((f"function {function}", "no example"))
        calls += made
    for start in range(0, len(calls), AT_ONCE):
        some = calls[start : start + AT_ONCE]
        functions = _placed(twin, some)
        twin.found = Found()
        twin.examine(list(functions))
        some_found = twin.found.by(lambda query, of=functions: of[query])
        found.labels += some_found.labels
        found.mismatches += some_found.mismatches
    return found


def examples(session: SparkSession) -> dict[str, list[str]]:
    """The queries of each function's documentation."""
    jvm: Any = session._jvm
    registry = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    found = {}
    for name in jvm.scala.jdk.javaapi.CollectionConverters.asJava(registry.listFunction()):
        text = registry.lookupFunction(name).get().getExamples()
        found[name.funcName()] = [" ".join(each.split()) for each in _EXAMPLE.findall(text)]
    return found


def _calls(session: SparkSession, function: str, text: str) -> Iterator[Call]:
    values = _VALUES.search(text)
    if values is not None:
        yield from _of_values(session, function, text, values)
    elif re.search(r"\bFROM\b(?!.*\))", text, re.IGNORECASE):
        yield Call(function, text)
    else:
        yield _of_literals(session, function, text)


def _of_values(
    session: SparkSession, function: str, text: str, values: re.Match[str]
) -> Iterator[Call]:
    rows = _stored(session, f"SELECT * {values[0].removesuffix(values['rest'])}")
    if rows is None:
        yield Call(function, text)
        return
    names = [name.strip() for name in values["columns"].split(",")]
    columns = ", ".join(f"c{i} AS {name}" for i, name in enumerate(names))
    source = f"FROM (SELECT {columns}, g FROM {{source}}) AS {values['name']}"
    before = text[: values.start()]
    yield Call(function, f"{before}{source}{values['rest']}", _grouped(rows))
    if not values["rest"].strip() and "OVER" not in before.upper():
        by_group = re.sub(r"^SELECT", "SELECT g,", before, flags=re.IGNORECASE)
        yield Call(function, f"{by_group}{source} GROUP BY g", _grouped(rows))


def _of_literals(session: SparkSession, function: str, text: str) -> Call:
    """The query over as many columns as Spark takes in place of literals."""
    chosen: list[re.Match[str]] = []
    query, source = text, ""
    literals = list(_LITERAL.finditer(text))
    for some in ([literals], [[each] for each in literals]):
        for more in some:
            tried = sorted({*chosen, *more}, key=lambda each: each.start())
            made, values = _with_columns(text, tried), _selected(tried)
            if tried and _is_accepted(session, f"{made} FROM ({values})"):
                chosen, query, source = tried, made, values
        if chosen:
            break
    rows = _stored(session, source) if chosen else None
    if rows is None:
        return Call(function, text)
    return Call(function, f"{query} FROM {{source}}", _with_nulls(rows))


def _with_columns(text: str, literals: Sequence[re.Match[str]]) -> str:
    parts, at = [], 0
    for number, each in enumerate(literals):
        parts += [text[at : each.start()], f"c{number}"]
        at = each.end()
    return "".join([*parts, text[at:]])


def _selected(literals: Sequence[re.Match[str]]) -> str:
    return "SELECT " + ", ".join(f"{each[0]} AS c{i}" for i, each in enumerate(literals))


def _is_accepted(session: SparkSession, query: str) -> bool:
    try:
        session.sql(query)
    except (PySparkException, Py4JError):
        return False
    return True


def _stored(session: SparkSession, query: str) -> pa.Table | None:
    """The rows, with columns c0, c1, ...; None: a collection cannot have them."""
    try:
        frame = session.sql(query)
        desc = RelationDesc.from_json(frame.schema.json())
        rows = frame.toArrow().cast(desc.arrow_schema())
    except Exception:
        return None
    return rows.rename_columns([f"c{i}" for i in range(rows.num_columns)])


def _with_nulls(rows: pa.Table) -> pa.Table:
    """The row, the row with NULL in one column each, and NULLs alone."""
    width = rows.num_columns
    columns = [
        rows.column(at)
        .combine_chunks()
        .take(
            pa.array([0, *(None if each == at else 0 for each in range(width)), None], pa.int64())
        )
        for at in range(width)
    ]
    return pa.table({f"c{at}": column for at, column in enumerate(columns)})


def _grouped(rows: pa.Table) -> pa.Table:
    """The rows as they are, with NULLs besides, and NULLs alone."""
    count = rows.num_rows
    places = pa.array([*range(count), *range(count), None, None], pa.int64())
    columns = {name: rows.column(name).combine_chunks().take(places) for name in rows.column_names}
    groups = pa.array([*[0] * count, *[1] * (count + 1), 2], pa.int32())
    return pa.table({**columns, "g": groups})


def _placed(twin: Twin, calls: Iterable[Call]) -> dict[str, str]:
    """The queries over collections that have the rows now, and whose they are.

    Calls with columns of the same types share a collection.
    """
    functions: dict[str, str] = {}
    tables: dict[str, list[pa.Table]] = {}
    for number, call in enumerate(calls):
        query = call.query
        if call.rows is not None:
            name = "_".join(re.sub(r"\W+", "", f"{f.name}{f.type}") for f in call.rows.schema)
            example = pa.repeat(pa.scalar(number, pa.int32()), call.rows.num_rows)
            tables.setdefault(name, []).append(call.rows.append_column("example", example))
            query = query.replace("{source}", f"(SELECT * FROM {name} WHERE example = {number})")
        functions[query] = f"function {call.function}"
    for name, parts in tables.items():
        frame = twin.session.createDataFrame(pa.concat_tables(parts))
        frame.createOrReplaceTempView(name)
    twin.read_tables()
    return functions
