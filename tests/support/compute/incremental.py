"""Tables with histories, and views over them that a real worker maintains with a real Spark."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from tests.support.compute.declared import Declared
from tests.support.compute.direct_outputs import DirectOutputs
from tests.support.persist.persistence import new_environment
from tests.support.waiting import PATIENCE, wait_until

from slackwater.compute.dataflow import Dataflow, IndexExport, Input, ViewExport
from slackwater.compute.engine import (
    Engine,
    Function,
    Indexed,
    IndexQuery,
    Known,
    Lookup,
    ViewPlan,
)
from slackwater.compute.limits import Limits
from slackwater.compute.peeked_rows import PeekLimits
from slackwater.compute.planning import index_plan, view_plan
from slackwater.compute.records import TickRecord
from slackwater.compute.worker import Listeners, Worker, WorkerOptions
from slackwater.persist.client import PersistClient, TablesAppend
from slackwater.persist.error_shards import first_refusal
from slackwater.persist.ipc import from_stream, to_stream
from slackwater.planner.delta.lowering import NotMaintained
from slackwater.planner.plan.algebra import Project, Source
from slackwater.repr.dataflow_error import ERRORS
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc

PATIENCE_MS = int(PATIENCE * 1000)
HOUR_MS = 3_600_000
Row = tuple
Update = tuple[Row, int, int]


def is_complete(worker: Worker, flow: Dataflow, at: int, timeout_s: float) -> bool:
    """Waits until the contents of the dataflow at `at` are complete; False: it took too long.

    Raises what ended the worker.
    """
    pause, deadline = threading.Event(), time.monotonic() + timeout_s
    while worker._shards.reads.state(flow.view.shard_id).upper <= at:
        if worker._replica.failed is not None:
            raise worker._replica.failed
        if time.monotonic() > deadline:
            return False
        pause.wait(0.005)
    return True


def end(worker: Worker) -> None:
    """Ends the worker, and returns when no thread of it has anything of the driver any more."""
    worker.stop(PATIENCE_MS)
    worker.validate()


class Bench:
    """An environment with tables `name` -> columns; `worker` maintains views over them."""

    def __init__(
        self,
        directory: Path,
        declared: Declared,
        limits: Limits | None = None,
        shards_of: Callable[[PersistClient], Any] = lambda client: client,
        engine: Engine | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`shards_of` gives a worker its shards and their commits; `engine` None: one of its own.

        `monotonic` is the workers' clock. `limits` None: the usual ones, but a tick of few rows is
        quick however slow the machine is.
        """
        self.environment = new_environment(f"sqlite:///{directory}/m.db", directory)
        self.client: PersistClient = self.environment.lead()
        self.declared = declared
        self.engine: Engine = engine or declared.engine(str(directory))
        self._limits = limits or Limits(quick_ms=HOUR_MS)
        self._shards_of = shards_of
        self._monotonic = monotonic
        self.relations: dict[str, tuple[GlobalId, int, RelationDesc]] = {}
        self.flows: dict[str, Dataflow] = {}
        self.indexes: list[IndexQuery] = []
        """Those on tables that plans of views are told of, whether they are maintained or not."""
        self.fatal: list[BaseException] = []
        self.progress = threading.Event()
        self.worker = self.new_worker("w")

    def new_worker(self, name: str) -> Worker:
        shards = self._shards_of(self.client)
        worker = Worker(
            shards,
            DirectOutputs(shards.commits),
            self.engine,
            Listeners(progress=lambda _: self.progress.set(), fatal=self.fatal.append),
            WorkerOptions(name, self._limits, self._monotonic),
        )
        worker.start()
        return worker

    def close(self) -> None:
        end(self.worker)
        self.environment.engine.dispose()

    def table(self, name: str, desc: RelationDesc) -> None:
        self._create(name, desc, None)

    def _create(
        self,
        name: str,
        desc: RelationDesc,
        upper: int | None,
        is_read: bool = True,
    ) -> int:
        made = self._shard(desc, upper)
        global_id = self.declared.id_of(name, desc) if is_read else GlobalId(f"unread-{name}")
        self.relations[name] = (global_id, made, desc)
        return made

    def _shard(self, desc: RelationDesc, upper: int | None) -> int:
        made: list[int] = []
        self.client.transactions.transact(
            lambda conn: made.append(
                self.client.definitions.create_shard(conn, desc, Timestamp(0), upper)
            )
        )
        return made[0]

    def commit(self, upper: int, updates: Mapping[str, Sequence[Update]] = {}) -> None:
        """Writes updates of tables and moves their upper."""
        written = {n: table_of(self.relations[n][2], rows) for n, rows in updates.items() if rows}
        self.write(upper, written)

    def write(self, upper: int, updates: Mapping[str, pa.Table]) -> None:
        """As `commit`, of updates that are tables."""
        shards = {name: self.relations[name][1] for name in updates}
        parts = {
            shards[n]: self.client.files.new_parts(shards[n], each) for n, each in updates.items()
        }
        lower = self.client.reads.tables_upper()
        self.client.commits.commit((), tables=TablesAppend(lower, Timestamp(upper), parts))
        self.worker.wake()

    def plan(
        self, query: str, settings: Mapping[str, str] = {}, functions: Sequence[Function] = ()
    ) -> ViewPlan:
        engine = self.engine.under(settings)
        indexed = Indexed(indexes=tuple(self.indexes))
        kept = engine.plan(query, "slackwater", ("default",), Known(functions), indexed)
        try:
            return view_plan(kept)
        except NotMaintained as missing:
            return ViewPlan(kept, None, missing.reason)

    def view(
        self,
        name: str,
        query: str,
        as_of: int = 0,
        settings: Mapping[str, str] = {},
        output: RelationDesc | None = None,
        is_read: bool = True,
        plan: ViewPlan | None = None,
    ) -> Dataflow:
        """Creates the view and lets the worker maintain it.

        `output`: its columns, None: those of the query. `is_read`: queries may name it. `plan` is
        that of the query, if there is one already.
        """
        plan = plan or self.plan(query, settings)
        analyzed = plan.kept.plan
        desc = output or analyzed.schema
        inputs = self._inputs(analyzed.collections)
        shard = self._create(name, desc, as_of, is_read)
        flow = Dataflow(
            global_id=self.relations[name][0],
            name=name,
            plan=plan,
            inputs=inputs,
            as_of=Timestamp(as_of),
            export=ViewExport(desc, shard, self._shard(ERRORS, as_of)),
            settings=settings,
        )
        self.flows[name] = flow
        self.worker.add(flow)
        return flow

    def index(
        self,
        name: str,
        query: str,
        keys: int,
        settings: Mapping[str, str] = {},
        functions: Sequence[Function] = (),
        is_view: bool = False,
    ) -> Dataflow:
        """The dataflow of an index over the rows of a query, by the last `keys` columns.

        `is_view`: these are computed, though each of one row. Nobody maintains it yet. Raises
        NotMaintained.
        """
        engine = self.engine.under(settings)
        indexed = Indexed(indexes=tuple(self.indexes))
        kept = engine.plan(query, "slackwater", ("default",), Known(functions), indexed)
        # As if the query selected from a plain view, which the engine does not know.
        of_rows = all(isinstance(node, Source | Project) for node in kept.plan.nodes)
        selected = replace(kept, plan=replace(kept.plan, selects=is_view or not of_rows))
        return Dataflow(
            global_id=GlobalId(f"index-{name}"),
            name=f"the index on {name}",
            plan=replace(index_plan(selected, keys), kept=kept),
            inputs=self._inputs(kept.plan.collections),
            as_of=Timestamp(0),
            export=IndexExport(keys),
            settings=settings,
        )

    def index_on(self, table: str, *keys: str, settings: Mapping[str, str] = {}) -> Dataflow:
        """The dataflow of an index on a table, of which views are told that are planned later."""
        named = ", ".join(f"({key}) AS key{position}" for position, key in enumerate(keys))
        query = f"SELECT *, {named} FROM {table}"
        name = f"{table}-{len(self.indexes)}"
        flow = self.index(name, query, len(keys), settings)
        self.indexes.append(IndexQuery(query, ("default",), len(keys), name))
        return flow

    def found(self, index: Dataflow, keys: pa.Table, time: int) -> pa.Table | None:
        """The rows of the keys at a time; None: the index does not have that time."""
        program = self.worker.program_in_driver(index.global_id)
        if program is None:
            return None
        at = Timestamp(time)
        below = Timestamp(time + 1)
        wanted = Lookup(program, to_stream(keys), at, below, PeekLimits(1 << 30, 1 << 30))
        stream = self.engine.look_up(wanted)
        return None if stream is None else from_stream(stream)

    def _inputs(self, collections: Sequence[str]) -> dict[GlobalId, Input]:
        by_id = {}
        for each, (global_id, shard, columns) in self.relations.items():
            below = self.flows.get(each)
            errors = None if below is None else below.view.errors_shard
            by_id[global_id] = Input(shard, columns, errors, each)
        return {GlobalId(each): by_id[GlobalId(each)] for each in collections}

    def wait(self, name: str, time: int) -> None:
        flow = self.flows[name]
        assert is_complete(self.worker, flow, time, PATIENCE), self.failure(flow)

    def ticked(self, name: str, time: int) -> TickRecord:
        """The record of the tick by which the view has come beyond the time.

        It is made after the commit, which others see.
        """
        self.wait(name, time)
        flow = self.flows[name]

        def is_recorded() -> bool:
            last = self.worker.records.last(flow.global_id)
            return last is not None and last.upper > time

        wait_until(is_recorded, what=f"the record of {name}")
        found = self.worker.records.last(flow.global_id)
        assert found is not None
        return found

    def failure(self, flow: Dataflow) -> SlackwaterError | None:
        """Why the dataflow does not go on."""
        failed = self.worker._replica.failures.get(flow.global_id)
        return None if failed is None else failed.error

    def is_out_of_memory(self, flow: Dataflow) -> bool:
        return flow.global_id in self.worker._replica.out_of_memory

    def refusal(self, name: str, time: int) -> SlackwaterError | None:
        """Why a view cannot be read at a time; None: it can."""
        shard = self.flows[name].view.errors_shard
        return first_refusal(self.client.reads, shard, name, Timestamp(time), Timestamp(time + 1))

    def rows(self, name: str, time: int) -> Counter:
        """The contents at a time, as a multiset."""
        if name in self.flows and (refusal := self.refusal(name, time)) is not None:
            raise refusal
        return Counter(canonical(row.values()) for row in self.snapshot(name, time).to_pylist())

    def snapshot(self, name: str, time: int) -> pa.Table:
        """The contents at a time."""
        _, shard, _ = self.relations[name]
        return self.client.reads.snapshot(shard, Timestamp(time))

    def recorded(self, name: str) -> pa.Table:
        """The recorded updates."""
        _, shard, desc = self.relations[name]
        upper = self.client.reads.state(shard).upper
        return self.client.reads.read(
            self.client.reads.parts_between(shard, Timestamp(0), upper), desc
        )

    def updates(self, name: str) -> list[tuple]:
        """The recorded updates (columns, time, diff), sorted."""
        rows = self.recorded(name).to_pylist()
        return sorted((tuple(row.values()) for row in rows), key=repr)


def canonical(values) -> tuple:
    """A row that compares as Spark groups: NaN equals NaN, -0.0 equals 0.0."""
    return tuple("NaN" if v != v else v + 0.0 if isinstance(v, float) else v for v in values)


def table_of(desc: RelationDesc, updates: Sequence[Update]) -> pa.Table:
    schema = desc.update_schema()
    names = schema.names
    rows = [dict(zip(names, (*row, time, diff), strict=True)) for row, time, diff in updates]
    return pa.Table.from_pylist(rows, schema=schema)


def contents_of(updates: Sequence[Update], time: int) -> list[Row]:
    """The rows at a time, as often as they occur."""
    counts: Counter = Counter()
    for row, at, diff in updates:
        if at <= time:
            counts[row] += diff
    return [row for row, count in counts.items() for _ in range(count)]


class Recomputation:
    """What DuckDB answers over the contents of tables at each time up to `last`."""

    def __init__(
        self, creates: Mapping[str, str], histories: Mapping[str, Sequence[Update]], last: int
    ) -> None:
        """`creates`: for each table its columns as DuckDB declares them, in parentheses."""
        self._duck = duckdb.connect()
        self._times = range(last + 1)
        for at in self._times:
            self._duck.execute(f"CREATE SCHEMA t{at}")
            for name, columns in creates.items():
                self._duck.execute(f"CREATE TABLE t{at}.{name} {columns}")
                rows = contents_of(histories[name], at)
                if rows:
                    marks = ", ".join("?" * len(rows[0]))
                    self._duck.executemany(f"INSERT INTO t{at}.{name} VALUES ({marks})", rows)

    def close(self) -> None:
        self._duck.close()

    def at(self, query: str, time: int) -> Counter:
        """The answer as a multiset."""
        self._duck.execute(f"USE t{time}")
        return Counter(canonical(row) for row in self._duck.execute(query).fetchall())


__all__ = ["Bench", "Recomputation", "canonical", "contents_of", "table_of"]
