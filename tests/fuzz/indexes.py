"""Indexes over the queries of a case: what they find has to be what DuckDB answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from tests.fuzz.cases import LAST, View, difference
from tests.fuzz.kinds import compared, is_collated
from tests.support.compute.incremental import Bench
from tests.support.waiting import wait_until

from slackwater.compute.dataflow import Dataflow
from slackwater.compute.engine import Function
from slackwater.compute.worker import Worker
from slackwater.planner.delta.lowering import NotMaintained
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.relation import RelationDesc, quote_identifier

MOST_KEYS = 2
MOST_TABLE_KEYS = 3
MOST_ALONE = 4
"""So many keys are looked up one by one."""

_UNEQUAL = re.compile(r"map<|variant", re.IGNORECASE)


def table_indexes(
    bench: Bench, name: str, desc: RelationDesc, settings: Mapping[str, str]
) -> Iterator[Dataflow]:
    """An index on the table for each of its first columns that can be compared, and for two."""
    keys = [c.name for c in desc.columns if not _UNEQUAL.search(c.sql_type)][:MOST_TABLE_KEYS]
    quoted = [quote_identifier(each) for each in keys]
    for each in [[key] for key in quoted] + [quoted[1::-1]] * (len(quoted) > 1):
        yield bench.index_on(quote_identifier(name), *each, settings=settings)


@dataclass(slots=True)
class Indexes:
    """An index over each view that has a program, by its first columns that can be compared."""

    bench: Bench
    flows: dict[str, Dataflow] = field(default_factory=dict)
    _keys: dict[str, list[int]] = field(default_factory=dict)
    checked: int = 0
    """How many times of how many views were read by an index."""

    def add(
        self,
        worker: Worker,
        name: str,
        view: View,
        desc: RelationDesc,
        functions: Sequence[Function],
    ) -> None:
        """Lets the worker maintain an index over the view, if it can have one."""
        columns = enumerate(desc.columns)
        keys = [i for i, each in columns if not _UNEQUAL.search(each.sql_type)][:MOST_KEYS]
        if not keys:
            return
        named = ", ".join(f"c{i}" for i in range(len(desc.columns)))
        chosen = ", ".join(f"c{i} AS key{n}" for n, i in enumerate(keys))
        query = f"SELECT *, {chosen} FROM (\n{view.spark}\n) AS q({named})"
        try:
            flow = self.bench.index(name, query, len(keys), view.settings, functions, is_view=True)
        except (NotMaintained, SlackwaterError):
            return
        self.flows[name], self._keys[name] = flow, keys
        worker.add(flow)

    def difference(self, name: str, wanted: Mapping[int, Counter], as_of: int) -> str | None:
        """What the index finds and DuckDB does not, or the other way round, at any time."""
        flow = self.flows.get(name)
        if flow is None:
            return None
        worker = self.bench.worker
        wait_until(lambda: worker._upper(flow) > LAST or self._ended(flow), what=flow.name)
        if worker._replica.failed is not None:
            return None
        desc, keys = self.bench.relations[name][2], self._keys[name]
        collated = [is_collated(column) for column in desc.columns]
        looked = self._looked_up(name, keys)
        for at in range(as_of, LAST + 1):
            rows = self.bench.found(flow, looked, at)
            if rows is None:
                if at == LAST:
                    return f"it has nothing at {at}"
                continue
            self.checked += 1
            found = Counter(_compared(rows, collated))
            if found != wanted[at]:
                return f"at {at} {difference(found, wanted[at])}"
            for position in range(min(MOST_ALONE, looked.num_rows)):
                one = looked.slice(position, 1)
                (key,) = _compared(one, [collated[i] for i in keys])
                alone = self.bench.found(flow, one, at)
                found = Counter() if alone is None else Counter(_compared(alone, collated))
                expected = Counter(
                    {row: n for row, n in wanted[at].items() if tuple(row[i] for i in keys) == key}
                )
                if found != expected:
                    return f"{key}: at {at} {difference(found, expected)}"
        return None

    def _ended(self, flow: Dataflow) -> bool:
        """Whether it does not go on, or its worker was killed after the last tick of the views."""
        failed = self.bench.worker._replica.failed is not None
        return failed or self.bench.failure(flow) is not None

    def _looked_up(self, name: str, keys: Sequence[int]) -> pa.Table:
        """Every key that the view has ever had, in all its forms."""
        recorded = self.bench.recorded(name)
        columns = [recorded.column(i) for i in keys]
        return pa.table(columns, names=[f"key{n}" for n in range(len(keys))])


def _compared(rows: pa.Table, collated: Sequence[bool]) -> list[tuple]:
    kinds = [each.type for each in rows.schema]
    columns = [column.to_pylist() for column in rows.columns]
    if not rows.num_rows:
        return []
    return [tuple(map(compared, row, kinds, collated)) for row in zip(*columns, strict=True)]
