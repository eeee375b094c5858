"""The program of one view in the driver, and what that keeps for it between ticks."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from slackwater.compute.cost_model import CostModel
from slackwater.compute.engine import (
    Behind,
    Engine,
    MissedUpdates,
    NamedUpdates,
    ProgramOwner,
    TickEnded,
    TickProgram,
)
from slackwater.compute.flow_shards import Changes, FlowShards
from slackwater.compute.schedule import Tick, capped_upper
from slackwater.compute.tick_outcome import Followed, TickMeter
from slackwater.planner.delta.explain import read_by_steps
from slackwater.planner.delta.lowering import reordered
from slackwater.planner.delta.program import Program
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import TIME_COLUMN

LONGEST_PAUSE_TICKS = 64
"""A program that did not fit into memory is tried again after so many ticks at most."""

MOST_PASSED_OVER = 100
"""A lookup may find so many rows of a key, on average, to see some of them.

Each that it does not see takes it a sixth of a microsecond (decision 0061).
"""

_LOG = structlog.get_logger("slackwater.compute")


@dataclass(slots=True)
class Residency:
    """Decides whether a program keeps what it looks up, or reads it anew in each tick.

    After each refusal of memory the view waits for twice as many ticks, since other views may end.
    """

    is_resident: bool = field(default=True, init=False)
    """Whether the program that was opened last keeps what it looks up, or was to."""
    out_of_memory: SlackwaterError | None = field(default=None, init=False)
    """Why the program keeps nothing; None: it does, or nobody has tried."""
    _refusals: int = field(default=0, init=False)
    _pause_ticks: int = field(default=0, init=False)

    @property
    def is_paused(self) -> bool:
        """Whether memory was refused, and the next tick is not to ask for it again."""
        return self._pause_ticks > 0

    def begin_tick(self) -> bool:
        """Counts a tick; whether a program that keeps nothing is to be opened anew for it."""
        if self._pause_ticks > 0:
            self._pause_ticks -= 1
            return False
        return not self.is_resident

    def granted(self) -> None:
        """There was room for what the program looks up."""
        self.out_of_memory, self._refusals = None, 0

    def refused(self, error: SlackwaterError) -> None:
        """There was no room for it."""
        self.out_of_memory = error
        self._refusals += 1
        self._pause_ticks = min(LONGEST_PAUSE_TICKS, 2**self._refusals)


@dataclass(slots=True)
class _OpenProgram:
    """A program that the driver has, and how far it is."""

    driver: TickProgram
    reached: Timestamp
    """The program has all updates of its inputs before this time."""
    next_change: Timestamp | None
    """When the output changes from `reached` on, if no input does; None: the last tick failed."""
    program: Program
    """The dataflow's program, or the one that does without indexes."""
    order: Program
    """The same, perhaps with its lookups in another order."""
    reads: tuple[str | None, ...]
    """For each step the collections that it reads, for records."""
    rows_until_order: int = 0
    """After following so many more rows the lookups may want another order."""


@dataclass(slots=True)
class MaintainedProgram:
    """Opens, hydrates and ticks the program of one view. Not thread-safe.

    The program is opened when a tick needs it and is hydrated with the inputs as they were just
    before that tick. A program that is closed has nothing in the driver, and can be opened again.

    Not guaranteed: that a tick is recorded. The program goes on from what another worker has
    committed, too.
    """

    shards: FlowShards
    engine: Engine
    cost_model: CostModel
    residency: Residency = field(default_factory=Residency, init=False)
    hydration_tried: bool = field(default=False, init=False)
    """Whether somebody tried to hydrate it ahead of a tick since it was closed."""
    _open: _OpenProgram | None = field(default=None, init=False)

    @property
    def is_open(self) -> bool:
        return self._open is not None

    @property
    def handle(self) -> str | None:
        """The driver's name of the program; None: it is closed. Any thread may ask."""
        opened = self._open
        return None if opened is None else opened.driver.handle

    @property
    def needs_hydration(self) -> bool:
        """Whether the next tick would hydrate it."""
        if self.residency.is_paused:
            return False
        return self._open is None or not self.residency.is_resident

    def is_ready(self, lower: Timestamp) -> bool:
        """Whether a tick from `lower` reads no whole input: the program keeps what it needs."""
        return self.is_open and self.residency.is_resident and not self.is_stale(lower)

    def is_stale(self, lower: Timestamp) -> bool:
        """Whether a tick from `lower` finds changes that the program cannot be told any more.

        It is closed and hydrated anew then.
        """
        if self._open is None:
            return False
        return self._open.reached <= min(lower, self.shards.readable_from(Timestamp(0)))

    def first_due(self, lower: Timestamp, upper: Timestamp) -> Timestamp:
        """The first time in the interval at which the contents may change though no input does.

        `upper`: there is none. `lower` also where nobody knows before a tick from there.
        """
        if not self.shards.flow.plan.is_temporal:
            return upper
        opened = self._open
        if opened is None or opened.next_change is None or lower != opened.reached:
            return lower
        return max(lower, min(upper, opened.next_change))

    def begin_tick(self) -> None:
        """Closes a program that keeps nothing when it is time to ask for memory again."""
        if self.residency.begin_tick() and self._open is not None:
            self.close()

    def hydrate(self, program: Program, before: Timestamp, meter: TickMeter) -> None:
        """Opens the program, with the contents of its inputs at `before`, unless it is open.

        Raises what `TickProgram.load` raises.
        """
        self.hydration_tried = True
        self._opened(program, before, meter)

    def tick(
        self,
        program: Program,
        tick: Tick,
        changes: Changes,
        most_ms: int | None,
        meter: TickMeter,
    ) -> Followed:
        """The updates of the interval, or of its beginning if it has too many rows for one tick.

        `changes` are those of the inputs in the interval. Raises what `TickProgram.load` and
        `TickProgram.tick` raise.
        """
        opened = self._opened_for(program, tick.lower, meter)
        due, opened.next_change = opened.next_change, None
        # Another worker may have committed what this program has not seen.
        begin = min(opened.reached, tick.lower)
        if begin < tick.lower:
            changes = self.shards.changes(begin, tick.upper)
        parts = [part for each in changes.values() for part in each]
        limits = self.shards.limits
        upper = capped_upper(
            parts,
            tick.lower,
            tick.upper,
            max_rows=limits.tick_rows,
            max_bytes=limits.tick_bytes,
        )
        meter.scanned += sum(part.rows for part in parts)
        resident = self.residency.is_resident
        before = None if resident else self.shards.contents(Timestamp(begin - 1))
        if resident and opened.rows_until_order <= 0:
            self._put_in_order(opened, meter)
        deltas = self._deltas(opened.order, changes, begin, upper)
        began_s = meter.monotonic()
        try:
            ticked = opened.driver.tick(begin, upper, deltas, most_ms, before)
        except TickEnded:
            opened.next_change = due
            raise
        took_us = meter.us_since(began_s)
        # The interval may have been cut: what came later was brought, and not followed.
        followed = sum(part.rows for part in parts if part.min_time < upper)
        if resident:
            opened.rows_until_order -= followed
            self.cost_model.ticked(followed, took_us)
        else:
            self.cost_model.read(took_us)
            last = Timestamp(begin - 1)
            meter.scanned += sum(self.shards.rows_of(g, last) for g in ticked.scanned)
        meter.load_us += ticked.load_us
        meter.encode_us += took_us - ticked.load_us - sum(s.elapsed_us for s in ticked.steps)
        opened.reached = max(opened.reached, upper)
        opened.next_change = ticked.next_change
        steps = tuple(
            replace(step, reads=reads)
            for step, reads in zip(ticked.steps, opened.reads, strict=True)
        )
        return Followed(_from(ticked.updates, begin, tick.lower), upper, steps, took_us)

    def give_up(self, error: SlackwaterError) -> None:
        """Closes the program: it does not fit into memory. It is tried again some ticks later."""
        self.close()
        self.hydration_tried = True
        self.residency.refused(error)
        _LOG.warning("no_memory_for_an_index", view=self.shards.flow.name, error=str(error))

    def committed(self, upper: Timestamp) -> None:
        """The updates up to `upper` are durable: no tick will begin before it.

        The driver may forget what was before; where it cannot be told so, it keeps that longer.
        """
        if self._open is None:
            return
        try:
            self._open.driver.committed(upper)
        except SlackwaterError as error:
            _LOG.warning("driver_not_told", view=self.shards.flow.name, error=str(error))

    def advanced(self, lower: Timestamp, upper: Timestamp) -> None:
        """Nothing has changed in the interval, neither the inputs nor by itself.

        A program that was hydrated as of an earlier time goes on to `upper`, too, if nothing has
        changed since then.
        """
        opened = self._open
        if opened is not None and self._is_quiet(opened, lower):
            opened.reached = max(opened.reached, upper)
            opened.driver.advanced(opened.reached)

    def _is_quiet(self, opened: _OpenProgram, upper: Timestamp) -> bool:
        """Whether nothing has changed from where the program is to before `upper`."""
        if opened.reached >= upper:
            return True
        if self.is_stale(upper):
            return False
        is_temporal = self.shards.flow.plan.is_temporal
        if is_temporal and (opened.next_change is None or opened.next_change < upper):
            return False
        return not any(self.shards.changes(opened.reached, upper).values())

    def close(self) -> None:
        """Gives back what the driver keeps."""
        opened, self._open, self.hydration_tried = self._open, None, False
        if opened is not None:
            opened.driver.close()

    def _opened_for(self, program: Program, lower: Timestamp, meter: TickMeter) -> _OpenProgram:
        """The program, which can be told what has changed since it was asked last."""
        if self.is_stale(lower):
            self.close()
        return self._opened(program, Timestamp(lower - 1), meter)

    def _opened(self, program: Program, before: Timestamp, meter: TickMeter) -> _OpenProgram:
        if self._open is not None:
            return self._open
        resident = not self.residency.is_paused
        alone = self.shards.flow.plan.alone
        if alone is None:
            return self._opened_as(program, before, resident, meter)
        if resident:
            try:
                opened = self._opened_as(program, before, True, meter)
            except SlackwaterError as error:
                if error.condition != "SLACKWATER_INDEX_MEMORY":
                    raise
            else:
                if not _passes_over_many(opened):
                    return opened
                self._open = None
                opened.driver.close()
        # What it keeps by itself has fewer columns than an index, and perhaps fewer rows.
        return self._opened_as(alone, before, resident, meter)

    def _opened_as(
        self, program: Program, before: Timestamp, resident: bool, meter: TickMeter
    ) -> _OpenProgram:
        flow = self.shards.flow
        self.residency.is_resident = resident
        next_change: Timestamp | None = None
        with ExitStack() as undo:
            began_s = meter.monotonic()
            owner = ProgramOwner(flow.global_id, flow.name)
            driver = self.engine.open_program(flow.plan.kept, program, owner, before, resident)
            undo.callback(driver.close)
            meter.plan_us += meter.us_since(began_s)
            if resident or flow.plan.is_temporal:
                next_change = self._loaded(driver, program, before, meter)
            undo.pop_all()
        reads = self._reads_of(program)
        reached = Timestamp(before + 1)
        self._open = _OpenProgram(driver, reached, next_change, program, program, reads)
        if resident:
            self.residency.granted()
        return self._open

    def _loaded(
        self, driver: TickProgram, program: Program, before: Timestamp, meter: TickMeter
    ) -> Timestamp:
        began_s, rows = meter.monotonic(), self.shards.input_rows(before)
        meter.scanned += rows
        contents = self.shards.contents(before)
        found = driver.load(contents)
        while isinstance(found, Behind):
            found = driver.load(contents, self._missed(program, found.upper, before))
        took_us = meter.us_since(began_s)
        self.cost_model.hydrated(rows, took_us)
        meter.load_us += took_us
        return found.next_change

    def _missed(self, program: Program, lower: Timestamp, last: Timestamp) -> MissedUpdates:
        """The updates of the inputs from `lower` up to `last`, if they can be followed."""
        upper = Timestamp(last + 1)
        changes = self.shards.changes(lower, upper)
        rows = sum(part.rows for parts in changes.values() for part in parts)
        # Looked at last: compaction that comes later does not change these parts.
        is_known = self.shards.readable_from(Timestamp(0)) < lower
        if not is_known or rows > self.shards.limits.tick_rows:
            return MissedUpdates(lower, None)
        return MissedUpdates(lower, self._deltas(program, changes, lower, upper))

    def _put_in_order(self, opened: _OpenProgram, meter: TickMeter) -> None:
        """Lets the lookups meet as few rows as they can, until as much again has changed."""
        if not opened.program.has_choice:
            opened.rows_until_order = sys.maxsize
            return
        began_s, sizes = meter.monotonic(), opened.driver.sizes()
        order = reordered(self.shards.flow.plan.kept.plan, opened.program, sizes)
        if order != opened.order:
            opened.driver.reorder(order)
            opened.order, opened.reads = order, self._reads_of(order)
        rows = sum(size.rows for size in sizes)
        opened.rows_until_order = max(self.shards.limits.ordered_rows, rows)
        meter.plan_us += meter.us_since(began_s)

    def _reads_of(self, program: Program) -> tuple[str | None, ...]:
        flow = self.shards.flow
        names = {str(g): source.name for g, source in flow.inputs.items()}
        return read_by_steps(flow.plan.kept.plan, program, names)

    def _deltas(
        self, program: Program, changes: Changes, begin: Timestamp, upper: Timestamp
    ) -> dict[str, NamedUpdates]:
        inputs = self.shards.flow.inputs
        return {
            g: NamedUpdates(g, inputs[g].desc, program.fields(g), parts, begin, upper)
            for g, parts in changes.items()
            if parts
        }


def _passes_over_many(opened: _OpenProgram) -> bool:
    """Whether it filters what it finds in an index that has many rows of a key."""
    arrangements = opened.program.arrangements
    if not any(each.is_filtered for each in arrangements):
        return False
    return any(
        each.is_filtered and size.rows > MOST_PASSED_OVER * max(1, size.keys)
        for each, size in zip(arrangements, opened.driver.sizes(), strict=True)
    )


def _from(updates: pa.Table, begin: Timestamp, lower: Timestamp) -> pa.Table:
    """The updates from `lower` on; those of the interval before are recorded."""
    if begin < lower:
        return updates.filter(pc.greater_equal(updates.column(TIME_COLUMN), lower))
    return updates
