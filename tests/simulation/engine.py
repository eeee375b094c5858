"""An engine below the seam `slackwater.compute.engine.Engine`: DuckDB in the place of Spark.

It knows what the simulated views and cursors ask for. A view's plan only names what it reads, and
its program evaluates the query at each time of a change.
"""

from __future__ import annotations

import base64
import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp
from tests.simulation.faults import Hazards
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import Place
from tests.support.planner.planned import plan_over

from slackwater.compute.engine import (
    NOTHING_INDEXED,
    Analysis,
    Contents,
    FailingRow,
    Function,
    Hydrated,
    Indexed,
    InputContents,
    KeptPlan,
    Known,
    MissedUpdates,
    NamedUpdates,
    ProgramOwner,
    Ticked,
    ViewContents,
)
from slackwater.compute.records import StepRecord
from slackwater.persist import reading
from slackwater.persist.blobs import Blobs
from slackwater.persist.parts import FileBody, InlineBody, NewPart, Uniform
from slackwater.planner.delta.program import Program, Size
from slackwater.repr.errors import user_error
from slackwater.repr.frontier import TIMESTAMP_MAX, Timestamp
from slackwater.repr.relation import RelationDesc

AS_OF = re.compile(r"\bAS OF (\d+)\s*$")
TYPES = {"BIGINT": "long", "HUGEINT": "long", "VARCHAR": "string", "INTEGER": "integer"}


@dataclass(slots=True)
class SimulatedEngine:
    """The engine of one server. `place` is there before anybody asks for a query."""

    hazards: Hazards
    blobs: Blobs
    place: Place | None = None
    _duck: duckdb.DuckDBPyConnection = field(
        default_factory=lambda: duckdb.connect(config={"threads": 1})
    )
    _planned: dict[str, Query] = field(default_factory=dict)
    _plans: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Of the connection."""

    def under(self, settings: Mapping[str, str] | None) -> SimulatedEngine:
        return self

    def on_replica(self, share):
        return self

    def end_replica(self, name):
        pass

    @contextmanager
    def ended_by(self, interruption):
        yield

    def rows_read(self, interruption):
        return 0

    def analyze(
        self, text: str, catalog: str, namespace: Sequence[str], functions: Sequence[Function] = ()
    ) -> Analysis:
        self.hazards.boundary("analysis")
        query = AS_OF.sub("", text)
        items = [self.place.item(name) for name in tables_of(query)]
        with self._lock:
            self._register({i.name: i.desc.arrow_schema().empty_table() for i in items})
            found = self._duck.execute(f"DESCRIBE {translated(query)}").fetchall()
        desc = RelationDesc.of(**{name: TYPES[kind] for name, kind, *_ in found})
        ids = tuple(item.id for item in items)
        return Analysis(desc, ids, (), ids, (), (), uses_mz_now=False)

    def collect(
        self, sql: str, catalog: str | None = None, namespace: Sequence[str] | None = None
    ) -> pa.Table:
        """The answer of a query of a session, which is bound as Spark binds it."""
        self._trouble()
        at, query = AS_OF.search(sql), AS_OF.sub("", sql)
        place = self.place
        items = [place.item(name) for name in tables_of(query)]
        body: dict[str, Any] = {"session": "engine/1", "relations": [{"id": i.id} for i in items]}
        if at is not None:
            body["as_of"] = {"at": int(at[1])}
        bound = calls_of(place.coordinator)["/v1/bind"](body)
        try:
            persist, time = place.env.persist, bound["timestamp"]
            found = {i.name: persist.reads.snapshot(i.shard_id, time) for i in items}
        finally:
            calls_of(place.coordinator)["/v1/release"]({"holds": [bound["hold"]]})
        with self._lock:
            self._register(found)
            return self._answer(query)

    def plan(
        self,
        text: str,
        catalog: str,
        namespace: Sequence[str],
        known: Known | None = None,
        indexed: Indexed = NOTHING_INDEXED,
    ) -> KeptPlan:
        found = self.analyze(text, catalog, namespace)
        items = [self.place.item(name) for name in tables_of(text)]
        plan = plan_over(items, found.desc, text)
        self._plans += 1
        plan_id = f"plan-{self._plans}"
        self._planned[plan_id] = Query(text, found.desc, {i.id: (i.name, i.desc) for i in items})
        return KeptPlan(plan_id, plan)

    def forget_plan(self, plan_id: str) -> None:
        self._planned.pop(plan_id, None)

    def unite_arrangements(self) -> None:
        """Does nothing: programs keep nothing in common here."""

    def open_program(
        self,
        kept: KeptPlan,
        program: Program,
        owner: ProgramOwner,
        as_of: Timestamp,
        resident: bool,
    ) -> SimulatedProgram:
        return SimulatedProgram(self, self._planned[kept.plan_id], len(program.steps))

    def collect_view(self, view: ViewContents, most_ms: int | None = None) -> pa.Table:
        query, at = self._planned[view.kept.plan_id], view.as_of
        found = self.answer(query, {g: self.contents(c, at) for g, c in view.inputs.items()})
        if view.recorded is not None:
            found.subtract(self.contents(view.recorded, at))
        return table_of(view.output, ((row, at, count) for row, count in found.items() if count))

    def failing_row(self, view: ViewContents, *, few: bool) -> FailingRow | None:
        return None

    def contents(self, contents: Contents, at: Timestamp) -> Counter[tuple]:
        """The rows of a relation in the protocol's form, at a time."""
        relation = contents.relation
        parts = [
            NewPart(InlineBody(base64.b64decode(text)), 0, at, at, True)
            for text in relation["inline"]
        ]
        for each in relation["files"]:
            uniform = None if each["time"] is None else Uniform(each["time"], each["diff"])
            body = FileBody(each["uri"], each["size_bytes"], each["modified_ms"], uniform)
            parts.append(NewPart(body, each["rows"], at, at, True))
        found = reading.read(parts, contents.desc, blobs=self.blobs, upper=Timestamp(at + 1))
        counts: Counter[tuple] = Counter()
        for *row, _, diff in rows_of(found):
            counts[tuple(row)] += diff
        return counts

    def updates(self, named: NamedUpdates) -> list[tuple[tuple, int, int]]:
        found = reading.read(
            named.parts, named.desc, blobs=self.blobs, lower=named.lower, upper=named.upper
        )
        return [(tuple(row), time, diff) for *row, time, diff in rows_of(found)]

    def answer(self, query: Query, contents: Mapping[str, Counter[tuple]]) -> Counter[tuple]:
        """What the query answers over these contents."""
        self._trouble()
        tables = {}
        for global_id, (name, desc) in query.reads.items():
            schema = desc.arrow_schema()
            rows = contents[global_id].elements()
            listed = [dict(zip(schema.names, row, strict=True)) for row in rows]
            tables[name] = pa.Table.from_pylist(listed, schema=schema)
        with self._lock:
            self._register(tables)
            return Counter(rows_of(self._answer(query.text)))

    def __getattr__(self, name: str):
        raise NotImplementedError(f"no simulation asks for {name}")

    def _trouble(self) -> None:
        self.hazards.boundary("query")
        self.hazards.work()
        if self.hazards.strikes("engine"):
            raise user_error("SLACKWATER_STORAGE_UNREADABLE", path="a file", reason="no answer")

    def _register(self, tables: Mapping[str, pa.Table]) -> None:
        for name, table in tables.items():
            self._duck.register(name, table)

    def _answer(self, sql: str) -> pa.Table:
        answer = self._duck.sql(translated(sql)).to_arrow_table()
        return answer.sort_by([(name, "ascending") for name in answer.schema.names])


@dataclass(frozen=True, slots=True)
class Query:
    """A view's query; `reads` has the names and the columns of what it reads, by ids."""

    text: str
    desc: RelationDesc
    reads: Mapping[str, tuple[str, RelationDesc]]


@dataclass(slots=True)
class SimulatedProgram:
    """`slackwater.compute.engine.TickProgram`, which keeps what its inputs hold.

    It has `steps` to tell of, in which nothing is done.
    """

    engine: SimulatedEngine
    query: Query
    steps: int
    _held: dict[str, Counter[tuple]] = field(default_factory=dict)
    """Just before `_begin`."""
    _begin: int = 0
    _pending: Mapping[str, list] = field(default_factory=dict)

    def load(self, inputs: InputContents, missed: MissedUpdates | None = None) -> Hydrated:
        at = inputs.as_of
        self._held = {g: self.engine.contents(c, at) for g, c in inputs.contents.items()}
        self._begin = at + 1
        return Hydrated(TIMESTAMP_MAX)

    def tick(
        self,
        lower: Timestamp,
        upper: Timestamp,
        deltas: Mapping[str, NamedUpdates],
        most_ms: int | None = None,
        before: InputContents | None = None,
    ) -> Ticked:
        if lower > self._begin:
            # Another replica has committed a part of what was asked for before.
            self.committed(lower)
        changes = {g: self.engine.updates(named) for g, named in deltas.items()}
        held = {g: Counter(rows) for g, rows in self._held.items()}
        before = self.engine.answer(self.query, held)
        made: list[tuple[tuple, int, int]] = []
        for at in sorted({time for each in changes.values() for _, time, _ in each}):
            _apply(held, changes, at, at)
            after = self.engine.answer(self.query, held)
            rows = sorted({*before, *after}, key=repr)
            made += [(r, at, after[r] - before[r]) for r in rows if after[r] != before[r]]
            before = after
        # Asked again, it has to give the same: what is not committed is not held.
        self._pending = changes
        told = (StepRecord("simulated", "delta", 0, 0, 0),) * self.steps
        return Ticked(table_of(self.query.desc, made), told)

    def sizes(self) -> tuple[Size, ...]:
        return ()

    def committed(self, upper: Timestamp) -> None:
        _apply(self._held, self._pending, self._begin, upper - 1)
        self._begin = upper

    def advanced(self, upper: Timestamp) -> None:
        pass

    def close(self) -> None:
        self._held = {}


def _apply(
    held: Mapping[str, Counter[tuple]], changes: Mapping[str, list], first: int, last: int
) -> None:
    for global_id, updates in changes.items():
        for row, time, diff in updates:
            if first <= time <= last:
                held[global_id][row] += diff


def rows_of(table: pa.Table) -> list[tuple]:
    return [tuple(row.values()) for row in table.to_pylist()]


def table_of(desc: RelationDesc, updates: Iterable[tuple[tuple, int, int]]) -> pa.Table:
    schema = desc.update_schema()
    rows = [dict(zip(schema.names, (*row, at, diff), strict=True)) for row, at, diff in updates]
    return pa.Table.from_pylist(rows, schema=schema)


def tables_of(query: str) -> list[str]:
    """The names of what the query reads."""
    found = sqlglot.parse_one(query, read="spark").find_all(exp.Table)
    return list(dict.fromkeys(table.name for table in found))


@cache
def translated(sql: str) -> str:
    """The text of Spark's SQL as DuckDB takes it."""
    tree = sqlglot.parse_one(sql, read="spark")
    for table in tree.find_all(exp.Table):
        # There is one schema of one catalog.
        table.set("catalog", None)
        table.set("db", None)
    for lateral in list(tree.find_all(exp.Lateral)):
        select, alias = lateral.parent_select, lateral.args["alias"]
        rows = lateral.this.this.sql(dialect="duckdb")
        columns = ", ".join(each.sql(dialect="duckdb") for each in alias.columns)
        select.args["laterals"].remove(lateral)
        flat = f"LATERAL (SELECT UNNEST({rows}, max_depth := 2)) AS {alias.name}({columns})"
        joined = sqlglot.parse_one(f"SELECT 1 FROM x CROSS JOIN {flat}", read="duckdb")
        select.append("joins", joined.args["joins"][0])
    return tree.sql(dialect="duckdb")
