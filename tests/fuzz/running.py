"""Runs a case: real workers over real shards, and DuckDB over the same contents."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from tests.fuzz import functions
from tests.fuzz.cases import LAST, Case, Run, View, contents, difference, reads
from tests.fuzz.indexes import Indexes, table_indexes
from tests.fuzz.kinds import KINDS, as_arrow, as_duck, compared, described, is_collated
from tests.fuzz.names import in_duck
from tests.fuzz.reads import Reads
from tests.fuzz.temporal import NOW
from tests.support.compute.declared import Declared
from tests.support.compute.incremental import Bench, end, is_complete
from tests.support.waiting import PATIENCE

from slackwater.compute.engine import Engine, Function, KeptPlan, TickProgram, ViewPlan
from slackwater.compute.worker import Worker
from slackwater.persist.client import PersistClient
from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, stored_column

ASKED_AFTER_S = 0.2
"""A view that is not done after so long is asked why."""
MOST_ROWS = 500_000
Contents = Mapping[int, Counter]
"""The rows at each time."""


@dataclass(frozen=True, slots=True)
class Failure:
    """`kind`: contents, index, read, bits, error, stuck or memory, which is not given back."""

    kind: str
    view: str
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """`refused`: why queries have no view, by the conditions of the errors.

    `short`: how many views were recomputed, or stood still, for lack of memory in some run.
    `looked_up`: at how many times views were read by an index. `served`: how many views look up in
    indexes of tables in some run. `read`: how many queries were read from tables of a coordinator.
    """

    failure: Failure | None
    views: int
    programs: int
    refused: Mapping[str, str] = field(default_factory=dict)
    short: int = 0
    looked_up: int = 0
    served: int = 0
    read: int = 0


class Killed(FatalError):
    """A worker ends in the middle of a step."""


class Steps:
    """What workers do to durable shards, counted; some of it is the last that they do."""

    def __init__(self, kills: Sequence[int]) -> None:
        self._kills = list(kills)
        self._count = 0
        self._generation = 0
        self._lock = threading.Lock()

    def begin_anew(self) -> None:
        """What was there before is dead from now on."""
        with self._lock:
            self._generation += 1

    def mortal(self, client: PersistClient) -> Mortal:
        return Mortal(client, self, self._generation)

    def step(self, generation: int) -> None:
        """Raises Killed."""
        with self._lock:
            if generation == self._generation:
                self._count += 1
                if not self._kills or self._count < self._kills[0]:
                    return
                self._kills.pop(0)
                self._generation += 1
        raise Killed("killed by the test")


class Mortal:
    """The shards of a worker, which may end before or after each change of one."""

    def __init__(self, client: PersistClient, steps: Steps, generation: int) -> None:
        self.reads = client.reads
        self.commits = MortalPart(client.commits, ("commit", "advance"), steps, generation)
        self.files = MortalPart(client.files, ("new_parts",), steps, generation)


class MortalPart:
    """A part of a client; the worker may end before or after each call of the named methods."""

    def __init__(
        self, part: object, changing: Sequence[str], steps: Steps, generation: int
    ) -> None:
        self._part = part
        self._changing = changing
        self._steps = steps
        self._generation = generation

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if name not in self._changing:
            return found

        def step(*arguments: Any) -> Any:
            self._steps.step(self._generation)
            answer = found(*arguments)
            self._steps.step(self._generation)
            return answer

        return step


class Lent:
    """An engine, and what the driver keeps for who asks it: `kept` gives it back."""

    def __init__(self, engine: Engine, kept: list[Callable[[], None]]) -> None:
        self._engine = engine
        self._kept = kept

    def under(self, settings: Mapping[str, str] | None) -> Lent:
        return Lent(self._engine.under(settings), self._kept)

    def plan(self, *arguments: Any) -> KeptPlan:
        kept = self._engine.plan(*arguments)
        self._kept.append(lambda: self._engine.forget_plan(kept.plan_id))
        return kept

    def open_program(self, *arguments: Any) -> TickProgram:
        program = self._engine.open_program(*arguments)
        self._kept.append(program.close)
        return program

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def failure_of(declared: Declared, case: Case) -> Failure | None:
    return outcome_of(declared, case).failure


def outcome_of(declared: Declared, case: Case) -> Outcome:
    """Runs the case in each of its ways. Views that one of the engines refuses are left out."""
    wanted, refused = _recomputed(case)
    views = {name: view for name, view in case.views.items() if name in wanted}
    failure, read = _read(declared, replace(case, views=views), wanted)
    if failure is not None:
        return Outcome(failure, len(views), 0, refused)
    shards: dict[str, Counter] = {}
    programs = short = looked_up = served = 0
    for number, run in enumerate(case.runs):
        with tempfile.TemporaryDirectory() as folder:
            maintained = _Maintained(Path(folder), declared, replace(case, views=views), run)
            try:
                failure = maintained.failure(wanted, shards if number else None)
                refused |= maintained.refused
                if failure is None and not number:
                    shards = {name: maintained.bits(name) for name in maintained.bench.flows}
                    flows = maintained.bench.flows.values()
                    programs = sum(flow.plan.program is not None for flow in flows)
            finally:
                maintained.close()
        short += len(maintained.short)
        looked_up += maintained.indexes.checked
        flows = maintained.bench.flows.values()
        served += sum(flow.plan.alone is not None for flow in flows)
        taken = declared.memory.used_bytes()
        if taken and failure is None:
            failure = Failure("memory", "", f"{taken} bytes are not given back")
        if failure is not None:
            return Outcome(failure, len(views), programs, refused, short, looked_up, served, read)
        views = {name: view for name, view in views.items() if name not in refused}
    return Outcome(None, len(views), programs, refused, short, looked_up, served, read)


def _read(
    declared: Declared, case: Case, wanted: Mapping[str, Contents]
) -> tuple[Failure | None, int]:
    """The first query that gives something else when it is read, and how many were read."""
    reads_of_case = Reads(declared, case)
    for name in case.views:
        told = reads_of_case.difference(name, wanted[name][LAST])
        if told is not None:
            return Failure("read", name, told), 0
    return None, len(case.views) - len(reads_of_case.refused)


class _Maintained:
    """One run of a case."""

    def __init__(self, folder: Path, declared: Declared, case: Case, run: Run) -> None:
        self._declared = declared
        self._case = case
        self._run = run
        self._steps = Steps(run.kills)
        self.refused: dict[str, str] = {}
        self.short: set[str] = set()
        self._low_memory = ExitStack()
        self._functions: dict[str, Sequence[Function]] = {}
        self._folder = str(folder)
        self._kept: list[Callable[[], None]] = []
        self.bench = Bench(folder, declared, run.limits, self._steps.mortal, self._engine())
        self._others: list[Worker] = []
        self.indexes = Indexes(self.bench)

    @property
    def _is_indexed(self) -> bool:
        """Whether views have indexes: in the run with most ticks, if it has room for them."""
        roomy = [run for run in self._case.runs if run.low_memory is None]
        return self._run is max(roomy, key=lambda run: len(run.boundaries), default=None)

    def close(self) -> None:
        self._low_memory.close()
        for worker in self._others:
            end(worker)
        self.bench.close()
        for give_back in self._kept:
            give_back()

    def _engine(self) -> Lent:
        """That of another coordinator."""
        return Lent(self._declared.engine(self._folder), self._kept)

    def failure(
        self, wanted: Mapping[str, Contents], shards: Mapping[str, Counter] | None
    ) -> Failure | None:
        """What is not as DuckDB says, or as in the shards of another run."""
        try:
            self._maintain()
            for name in self.bench.flows:
                found = self._contents(name)
                for at in range(self._case.as_of, LAST + 1):
                    refusal = self.bench.refusal(name, at)
                    if refusal is not None:
                        return Failure("error", name, f"{refusal} at {at}")
                    if found[at] != wanted[name][at]:
                        return Failure(
                            "contents", name, f"at {at} {difference(found[at], wanted[name][at])}"
                        )
                found_otherwise = self.indexes.difference(name, wanted[name], self._case.as_of)
                if found_otherwise is not None:
                    return Failure("index", name, found_otherwise)
                if shards is not None and self.bits(name) != shards[name]:
                    return Failure("bits", name, _bits(self.bits(name), shards[name]))
        except _Stopped as stopped:
            return stopped.failure
        deaths = [each for each in self.bench.fatal if not isinstance(each, Killed)]
        return Failure("error", "", repr(deaths[0])) if deaths else None

    def _maintain(self) -> None:
        bench, case = self.bench, self._case
        for name, kinds in case.tables.items():
            bench.table(name, described(kinds))
        self._race()
        low_memory = self._run.low_memory
        if low_memory is not None:
            self._low_memory.enter_context(self._declared.memory.all_but(low_memory.pages))
        for upper in self._run.boundaries:
            if low_memory is not None and upper >= low_memory.until:
                self._low_memory.close()
            lower = bench.client.reads.tables_upper()
            bench.write(upper, self._updates(lower, upper))
            if upper <= case.as_of:
                continue
            if not bench.flows:
                self._create()
            for worker in self._others:
                worker.wake()
            for name, flow in bench.flows.items():
                self._wait(name, upper - 1)
                if bench.is_out_of_memory(flow):
                    self.short.add(name)

    def _updates(self, lower: int, upper: int) -> dict[str, pa.Table]:
        found = {}
        for name, kinds in self._case.tables.items():
            schema = described(kinds).update_schema()
            rows = [
                {
                    **{
                        stored_column(c): as_arrow(kinds[c], v)
                        for c, v in zip(kinds, row, strict=True)
                    },
                    TIME_COLUMN: at,
                    DIFF_COLUMN: diff,
                }
                for row, at, diff in self._case.histories[name]
                if lower <= at < upper
            ]
            if rows:
                found[name] = pa.Table.from_pylist(rows, schema=schema)
        return found

    def _create(self) -> None:
        texts = [view.spark for view in self._case.views.values()]
        for statement in functions.definitions(texts):
            self._declared.session.sql(statement)
        self._index_tables()
        self._create_views()
        for statement in functions.replacements(texts):
            self._declared.session.sql(statement)

    def _index_tables(self) -> None:
        """Views are told of indexes in all runs but one, and these are there in one."""
        self.bench.indexes.clear()
        views = self._case.views
        if not views or (len(self._case.runs) > 1 and self._run is self._case.runs[0]):
            return
        settings = next(iter(views.values())).settings
        for name, kinds in self._case.tables.items():
            for flow in table_indexes(self.bench, name, described(kinds), settings):
                if self._is_indexed:
                    self.bench.worker.add(flow)

    def _create_views(self) -> None:
        for name, view in self._case.views.items():
            below = next((each for each in self.refused if reads(view.spark, each)), None)
            if below is not None:
                self.refused[name] = f"reads {below}"
                continue
            try:
                is_read = any(reads(each.spark, name) for each in self._case.views.values())
                flow = self.bench.view(
                    name,
                    view.spark,
                    self._case.as_of,
                    view.settings,
                    is_read=is_read,
                    plan=self._plan(name, view),
                )
            except SlackwaterError as error:
                if "INTERNAL" in error.condition:
                    raise _Stopped(Failure("error", name, str(error))) from error
                self.refused[name] = error.condition
                continue
            for worker in self._others:
                worker.add(flow)
            self._index(name)

    def _index(self, name: str) -> None:
        view, flow = self._case.views[name], self.bench.flows[name]
        if self._is_indexed and flow.plan.program is not None:
            kept = self._kept_functions(name, view)
            self.indexes.add(self.bench.worker, name, view, flow.view.desc, kept)

    def _plan(self, name: str, view: View) -> ViewPlan:
        """Raises SLACKWATER_TEMPORAL_FILTER, as a statement that makes a view does."""
        plan = self.bench.plan(view.spark, view.settings, self._kept_functions(name, view))
        if plan.is_temporal and plan.program is None:
            raise user_error("SLACKWATER_TEMPORAL_FILTER", objectName="it", reason=plan.reason)
        return plan

    def _kept_functions(self, name: str, view: View) -> Sequence[Function]:
        """Those that the view calls, as they were when it was made."""
        if name not in self._functions and functions.are_in(view.spark):
            engine = self.bench.engine.under(view.settings)
            brought = functions.of_python(view.spark)
            analysis = engine.analyze(view.spark, "slackwater", ("default",), brought)
            self._functions[name] = analysis.functions
        return self._functions.get(name, ())

    def _race(self) -> None:
        self._others = [self.bench.new_worker(f"w{n}") for n in range(1, self._run.workers)]

    def _wait(self, name: str, at: int) -> None:
        bench = self.bench
        flow = bench.flows[name]
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if is_complete(bench.worker, flow, at, ASKED_AFTER_S):
                    return
            except Killed:
                self._begin_anew()
                continue
            except (SlackwaterError, FatalError) as error:
                raise _Stopped(Failure("error", name, f"{error} at {at}")) from error
            failure = bench.failure(flow)
            if flow.plan.is_temporal and _is_of_memory(failure):
                self.short.add(name)
                self._low_memory.close()
            elif failure is not None and "INTERNAL" in failure.condition:
                raise _Stopped(Failure("error", name, f"{failure} at {at}"))
            if time.monotonic() > deadline:
                raise _Stopped(Failure("stuck", name, f"{failure} at {at}"))

    def _begin_anew(self) -> None:
        """As a coordinator that finds what another one has left."""
        bench = self.bench
        self._steps.begin_anew()
        for worker in (bench.worker, *self._others):
            end(worker)
        bench.engine = self._engine()
        bench.worker = bench.new_worker("w")
        self._race()
        self._index_tables()
        for name, flow in bench.flows.items():
            view = self._case.views[name]
            again = replace(flow, plan=self._plan(name, view))
            bench.flows[name] = again
            for worker in (bench.worker, *self._others):
                worker.add(again)
            self._index(name)

    def _contents(self, name: str) -> Contents:
        found: dict[int, Counter] = {}
        for at in range(self._case.as_of, LAST + 1):
            found[at] = Counter()
        recorded = self.bench.recorded(name)
        desc = self.bench.relations[name][2]
        for row, at, diff in _rows(recorded, [is_collated(column) for column in desc.columns]):
            for later in range(max(at, self._case.as_of), LAST + 1):
                found[later][row] += diff
        return {at: Counter({r: n for r, n in rows.items() if n}) for at, rows in found.items()}

    def bits(self, name: str) -> Counter:
        """The updates of the view's shard, consolidated; each row by its exact values."""
        found: Counter = Counter()
        for row in self.bench.recorded(name).to_pylist():
            diff = row.pop(DIFF_COLUMN)
            found[repr(row)] += diff
        return Counter({row: count for row, count in found.items() if count})


class _TooManyRows(Exception):
    """DuckDB has each row as often as it is there: a view on views may have billions."""


class _Stopped(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


def _is_of_memory(error: SlackwaterError | None) -> bool:
    return error is not None and error.condition == "SLACKWATER_INDEX_MEMORY"


def _rows(updates: pa.Table, collated: Sequence[bool]) -> list[tuple[tuple, int, int]]:
    kinds = [field.type for field in updates.schema][:-2]
    found = []
    for row in updates.to_pylist():
        *values, at, diff = row.values()
        each = tuple(map(compared, values, kinds, collated))
        found.append((each, at, diff))
    return found


def _bits(found: Counter, other: Counter) -> str:
    rows = {
        row: (found[row], other[row])
        for row in found.keys() | other.keys()
        if found[row] != other[row]
    }
    return f"rows, with how many there are in either run: {rows}"


# DuckDB


def _recomputed(case: Case) -> tuple[dict[str, Contents], dict[str, str]]:
    """What DuckDB answers at each time, and why it does not."""
    refused: dict[str, str] = {}
    duck = duckdb.connect(config={"threads": 1, "memory_limit": "2GB"})
    try:
        for name, kinds in case.tables.items():
            columns = ", ".join(f"{in_duck(c)} {KINDS[kind].duck}" for c, kind in kinds.items())
            duck.execute(f"CREATE TABLE {name} ({columns})")
        for macro in functions.macros():
            duck.execute(macro)
        _tell_time(duck, case.as_of)
        for name, view in case.views.items():
            try:
                duck.execute(f"CREATE VIEW {name} AS {view.duck}")
            except duckdb.Error as error:
                refused[name] = f"DuckDB: {type(error).__name__}"
        answers: dict[str, dict[int, Counter]] = {n: {} for n in case.views if n not in refused}
        is_timed = any(NOW in view.duck for view in case.views.values())
        changes = {at for updates in case.histories.values() for _, at, _ in updates}
        for at in range(case.as_of, LAST + 1):
            if at > case.as_of and at not in changes and not is_timed:
                for each in answers.values():
                    each[at] = each[at - 1]
                continue
            _tell_time(duck, at)
            _fill(duck, case, at)
            for name in list(answers):
                try:
                    answers[name][at] = _answer(duck, name)
                except (duckdb.Error, _TooManyRows) as error:
                    refused[name] = f"DuckDB: {type(error).__name__}"
                    del answers[name]
        return answers, refused
    finally:
        duck.close()


def _tell_time(duck: duckdb.DuckDBPyConnection, at: int) -> None:
    duck.execute(f"CREATE OR REPLACE MACRO {NOW} AS {at}::BIGINT")


def _fill(duck: duckdb.DuckDBPyConnection, case: Case, at: int) -> None:
    for name, kinds in case.tables.items():
        schema = pa.schema(
            # There a timestamp is one without a zone, in UTC.
            pa.field(
                each.name, pa.timestamp("us") if pa.types.is_timestamp(each.type) else each.type
            )
            for each in described(kinds).arrow_schema()
        )
        rows = [
            {stored_column(c): as_duck(kinds[c], v) for c, v in zip(kinds, row, strict=True)}
            for row in contents(case.histories[name], at)
        ]
        duck.register("rows", pa.Table.from_pylist(rows, schema=schema))
        duck.execute(f"DELETE FROM {name}")
        duck.execute(f"INSERT INTO {name} FROM rows")


def _answer(duck: duckdb.DuckDBPyConnection, name: str) -> Counter:
    found = duck.sql(f"FROM {name}").to_arrow_reader()
    kinds = [field.type for field in found.schema]
    rows: Counter = Counter()
    for batch in found:
        rows.update(tuple(map(compared, row.values(), kinds)) for row in batch.to_pylist())
        if rows.total() > MOST_ROWS:
            raise _TooManyRows
    return rows
