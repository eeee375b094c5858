"""An engine below the seam `slackwater.compute.engine.Engine`: DuckDB in the place of Spark.

It knows what the simulated views and cursors ask for, and nothing of how views are maintained: any
text over named updates is evaluated as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from tests.simulation.faults import Hazards
from tests.support.coordination import Place

from slackwater.compute.engine import Analysis, NamedUpdates
from slackwater.persist import reading
from slackwater.persist.blobs import Blobs
from slackwater.repr.errors import user_error
from slackwater.repr.relation import TIME_COLUMN, RelationDesc

AS_OF = re.compile(r"\bAS OF (\d+)\s*$")
TYPES = {"BIGINT": "long", "HUGEINT": "long", "VARCHAR": "string", "INTEGER": "integer"}


@dataclass(slots=True)
class SimulatedEngine:
    """The engine of one server. `place` is there before anybody can ask for a query of his own."""

    hazards: Hazards
    blobs: Blobs
    place: Place | None = None
    _duck: duckdb.DuckDBPyConnection = field(
        default_factory=lambda: duckdb.connect(config={"threads": 1})
    )

    def under(self, settings: Mapping[str, str] | None) -> SimulatedEngine:
        return self

    @contextmanager
    def ended_by(self, interruption):
        yield

    def analyze(self, text: str, catalog: str, namespace: Sequence[str]) -> Analysis:
        self.hazards.boundary("analysis")
        query = AS_OF.sub("", text)
        items = [self.place.item(name) for name in tables_of(query)]
        self._register({i.name: i.desc.arrow_schema().empty_table() for i in items})
        found = self._duck.execute(f"DESCRIBE {translated(query)}").fetchall()
        desc = RelationDesc.of(**{name: TYPES[kind] for name, kind, *_ in found})
        ids = tuple(item.id for item in items)
        return Analysis(desc, ids, (), ids, (), (), uses_mz_now=False, streaming=False)

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
        bound = place.coordinator.calls()["/v1/bind"](body)
        try:
            persist, time = place.env.persist, bound["timestamp"]
            found = {i.name: persist.snapshot(i.shard_id, time) for i in items}
        finally:
            place.coordinator.calls()["/v1/release"]({"holds": [bound["hold"]]})
        self._register(found)
        return self._answer(query)

    def collect_small(self, sql: str, views: Sequence[NamedUpdates]) -> pa.Table:
        self._trouble()
        self._register({view.name: self._updates(view) for view in views})
        return self._answer(sql)

    def __getattr__(self, name: str):
        raise NotImplementedError(f"no simulation asks for {name}")

    def _trouble(self) -> None:
        self.hazards.boundary("query")
        if self.hazards.strikes("engine"):
            raise user_error("SLACKWATER_STORAGE_UNREADABLE", path="a file", reason="no answer")

    def _updates(self, view: NamedUpdates) -> pa.Table:
        found = reading.read(
            view.parts, view.desc, blobs=self.blobs, lower=view.lower, upper=view.upper
        )
        if view.advance_to is None:
            return found
        position = found.schema.get_field_index(TIME_COLUMN)
        raised = pc.max_element_wise(found.column(position), int(view.advance_to))
        return found.set_column(position, found.schema.field(position), raised)

    def _register(self, tables: Mapping[str, pa.Table]) -> None:
        for name, table in tables.items():
            self._duck.register(name, table)

    def _answer(self, sql: str) -> pa.Table:
        answer = self._duck.sql(translated(sql)).to_arrow_table()
        return answer.sort_by([(name, "ascending") for name in answer.schema.names])


def tables_of(query: str) -> list[str]:
    """The names of what the query reads."""
    found = sqlglot.parse_one(query, read="spark").find_all(exp.Table)
    return list(dict.fromkeys(table.name for table in found))


@cache
def translated(sql: str) -> str:
    """The text of Spark's SQL as DuckDB takes it."""
    tree = sqlglot.parse_one(sql, read="spark")
    for lateral in list(tree.find_all(exp.Lateral)):
        select, alias = lateral.parent_select, lateral.args["alias"]
        rows = lateral.this.this.sql(dialect="duckdb")
        columns = ", ".join(each.sql(dialect="duckdb") for each in alias.columns)
        select.args["laterals"].remove(lateral)
        flat = f"LATERAL (SELECT UNNEST({rows}, max_depth := 2)) AS {alias.name}({columns})"
        joined = sqlglot.parse_one(f"SELECT 1 FROM x CROSS JOIN {flat}", read="duckdb")
        select.append("joins", joined.args["joins"][0])
    return tree.sql(dialect="duckdb")
