"""A tick: the updates of a view that follow from those of its inputs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from slackwater.compute.cost_model import CostModel, changed_rows
from slackwater.compute.dataflow import Dataflow, Input, Shards, readable_from
from slackwater.compute.engine import (
    Contents,
    Engine,
    InputContents,
    NamedUpdates,
    TickEnded,
    TickProgram,
    ViewContents,
)
from slackwater.compute.failing import called
from slackwater.compute.limits import Limits
from slackwater.compute.records import StepRecord
from slackwater.compute.relations import relation_json
from slackwater.compute.schedule import Tick, capped_upper
from slackwater.persist import reading
from slackwater.persist.client import Append
from slackwater.persist.error_shards import errors_at, first_refusal
from slackwater.persist.parts import FileBody, NewPart, Part
from slackwater.planner.delta.explain import read_by_steps
from slackwater.planner.delta.lowering import reordered
from slackwater.planner.delta.program import Program
from slackwater.repr.dataflow_error import (
    DATA_ERROR,
    ERRORS,
    SOURCE_ERROR,
    EvaluationError,
    encode,
)
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, RelationDesc

LONGEST_PAUSE_TICKS = 64
"""What did not fit into memory is tried again after so many ticks at most."""

CHANGES_TRIED = 16
"""While a query fails, it is computed at each of so many changes; of more at the last one only."""

INHERITED = frozenset({DATA_ERROR, SOURCE_ERROR})
"""The errors of a view that those of its inputs are."""

_Changes = Mapping[GlobalId, tuple[Part, ...]]

_LOG = structlog.get_logger("slackwater.compute")


@dataclass(slots=True)
class RunningView:
    """A view that is maintained, and what the driver keeps for it between ticks. Not thread-safe.

    The promise of a tick: for every t in its interval, the view's updates up to t add up to its
    query's rows over the inputs at t, and it has no errors at t; or the query fails over these
    inputs, and the view has an error at t.

    A view without a program is recomputed at each time at which an input changes; its updates are
    what the contents differ by. So is a view at one time at which so much changes that this costs
    less. What a program keeps is hydrated from the inputs as they were just before a tick, when a
    tick needs it. Where there is no memory for that, each tick reads of the inputs what it needs.

    A view with a temporal filter also changes when no input does, and only its program knows when:
    without memory for the rows that wait it does not go on. While its query fails and no input
    changes, it is computed as a whole at the last time of each tick.
    """

    flow: Dataflow
    shards: Shards
    engine: Engine
    limits: Limits = field(default_factory=Limits)
    monotonic: Callable[[], float] = time.monotonic
    """Seconds, by which it is measured what ticks cost."""
    scanned: int = field(default=0, init=False)
    """How many rows the last tick read whole, or the present one is to read so."""
    out_of_memory: SlackwaterError | None = field(default=None, init=False)
    """Why the program is not resident."""
    by_program: bool = field(default=False, init=False)
    """Whether the last tick was one of the program."""
    steps: tuple[StepRecord, ...] = field(default=(), init=False)
    """What the last tick did."""
    plan_us: int = field(default=0, init=False)
    load_us: int = field(default=0, init=False)
    encode_us: int = field(default=0, init=False)
    """These as `TickTimes` has them."""
    _running: TickProgram | None = field(default=None, init=False)
    """With all that it keeps."""
    _resident: bool = field(default=True, init=False)
    """Whether the program keeps what it looks up."""
    _order: Program | None = field(default=None, init=False)
    """What runs: the dataflow's program, or it with its lookups in another order."""
    _reads: tuple[str | None, ...] = field(default=(), init=False)
    """What each of its steps reads, for records."""
    _rows_until_order: int = field(default=0, init=False)
    """After so many more rows that are followed the lookups may want another order."""
    _reached: Timestamp = field(default=Timestamp(0), init=False)
    """What the program keeps has all updates of its inputs before this time."""
    _next_change: Timestamp | None = field(default=None, init=False)
    """From `_reached` on, if no input changes; None: the last tick did not tell."""
    _tried: bool = field(default=False, init=False)
    _fails: bool = field(default=False, init=False)
    """Whether the query failed at the last time at which it was computed as a whole."""
    _careful_until: Timestamp = field(default=Timestamp(0), init=False)
    """Up to here a tick has failed: until then there is one for each time of a change."""
    _compares: bool = field(init=False)
    """Whether the output may differ from what the plan has until it is compared."""
    _is_slow: bool = field(default=False, init=False)
    """Whether the last tick took longer than others may wait."""
    _cost_model: CostModel = field(init=False)
    _attempts: int = field(default=0, init=False)
    _pause_ticks: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._compares = self.flow.plan_changed
        self._cost_model = CostModel(self.limits.incremental_below_rows)

    def first_due(self, lower: Timestamp, upper: Timestamp) -> Timestamp:
        """The first time in the interval at which the contents may change though no input does.

        `upper`: there is none. `lower` also where nobody knows before a tick from there.
        """
        if not self.flow.plan.is_temporal:
            return upper
        if self._running is None or self._next_change is None or lower != self._reached:
            return lower
        return max(lower, min(upper, self._next_change))

    def is_quick(self, tick: Tick) -> bool:
        """Whether the tick only follows changes, and few: others may wait for it."""
        if tick.first or self._running is None or self._compares or self._is_slow:
            return False
        if not self._resident:
            return False
        changes = self._changes(tick.lower, tick.upper).values()
        return sum(part.rows for parts in changes for part in parts) <= self.limits.quick_rows

    @property
    def needs_hydration(self) -> bool:
        """Whether the next tick hydrates the program."""
        if self.flow.plan.program is None or self._pause_ticks > 0 or self._fails:
            return False
        return self._running is None or not self._resident

    def appends(self, tick: Tick, most_ms: int | None = None) -> tuple[Append, Append]:
        """The updates of the tick: those of the rows, and those of the errors.

        It may end before ``tick.upper``: another one does the rest. Nothing is committed. Raises
        what the engine and the shards raise, but no error of a row; of a view with a temporal
        filter SLACKWATER_INDEX_MEMORY when there is no memory for the rows that wait, and
        SLACKWATER_TEMPORAL_FILTER when it has none; `TickEnded` when it takes longer than
        `most_ms`, or the dataflow is removed.
        """
        self.scanned, self.steps, self.by_program = 0, (), False
        self.plan_us = self.load_us = self.encode_us = 0
        held: tuple[str, ...] = ()
        if not tick.first:
            held = errors_at(self.shards, self.flow.errors_shard, Timestamp(tick.lower - 1))
        if held or readable_from(self.flow, self.shards, tick.lower) > tick.lower:
            return self._whole(tick, held)
        due = self.first_due(tick.lower, tick.upper)
        if tick.lower < self._careful_until:
            tick = self._smallest(tick, due) or tick
        try:
            return self._with_errors(self._rows(tick, most_ms), ())
        except SlackwaterError as error:
            smallest = self._smallest(tick, due) if error.is_data_error else None
            if smallest is None:
                raise
        self._careful_until = tick.upper
        if smallest != tick:
            return self.appends(smallest, most_ms)
        if most_ms is not None and not self.flow.plan.is_temporal:
            # To compute the query as a whole, and to look for the row, is nothing to wait for.
            self._is_slow = True
            raise TickEnded("slow")
        return self._whole(tick, ())

    @property
    def can_hydrate_ahead(self) -> bool:
        """Whether the next tick would have to hydrate the program, and nobody has tried it yet."""
        if not self.needs_hydration or self._tried or not self.flow.inputs:
            return False
        return self.shards.state(self.flow.output_shard).upper > self.flow.as_of

    def hydrate(self) -> None:
        """Makes the program ready for the next tick. Raises what `appends` raises."""
        self._tried, self.scanned = True, 0
        upper = self.shards.state(self.flow.output_shard).upper
        if self.flow.plan.program is not None:
            self._hydrated(self.flow.plan.program, Timestamp(upper - 1))

    def committed(self, upper: Timestamp) -> None:
        """The updates up to `upper` are durable."""
        self._compares = False
        if self._running is not None:
            self._running.committed(upper)

    def advanced(self, lower: Timestamp, upper: Timestamp) -> None:
        """Nothing has changed in the interval, neither the inputs nor by itself."""
        if self._reached == lower:
            self._reached = max(lower, upper)

    def close(self) -> None:
        """Gives back what the driver keeps."""
        running, self._running, self._tried = self._running, None, False
        if running is not None:
            running.close()

    def end(self) -> None:
        """Gives back everything: the dataflow is not maintained any more."""
        self.close()
        self.engine.forget_plan(self.flow.plan.kept.plan_id)

    def _rows(self, tick: Tick, most_ms: int | None) -> Append:
        """The updates of the rows, if the query fails at no time of the tick."""
        program = self.flow.plan.program
        if program is None and self.flow.plan.is_temporal:
            name, reason = self.flow.name, self.flow.plan.reason
            raise user_error("SLACKWATER_TEMPORAL_FILTER", objectName=name, reason=reason)
        if tick.first:
            return self._contents(tick, tick.lower)
        self._refuse_errors(tick.lower, tick.upper)
        if self._compares:
            self.close()
            return self._contents(tick, tick.lower)
        if program is None:
            return self._recomputed(tick)
        if self._pause_ticks > 0:
            self._pause_ticks -= 1
        elif self._running is not None and not self._resident:
            self.close()
        changes = self._changes(tick.lower, tick.upper)
        whole = self._better_whole_at(changes)
        if whole is not None:
            if self._nothing_before(whole, tick, changes):
                with suppress(TickEnded):
                    return self._recomputed_soon(tick, whole)
            else:
                tick = replace(tick, upper=whole)
                changes = self._changes(tick.lower, tick.upper)
        try:
            return self._ticked(program, tick, changes, most_ms)
        except TickEnded as ended:
            if ended.reason != "large":
                self._is_slow = True
                raise
            self.close()
            if self.flow.plan.is_temporal:
                raise user_error("SLACKWATER_TICK_MEMORY", objectName=self.flow.name) from ended
            return self._recomputed(tick)
        except SlackwaterError as error:
            if error.condition != "SLACKWATER_INDEX_MEMORY":
                raise
            if not self._resident:
                self.close()
                raise
            self._give_up(error)
            return self._rows(tick, most_ms)

    # Errors

    def _refuse_errors(self, lower: Timestamp, upper: Timestamp) -> None:
        """Raises SLACKWATER_SOURCE_ERROR or SLACKWATER_DATA_ERROR when an input has an error."""
        for source in self.flow.inputs.values():
            if source.errors_shard is not None:
                error = first_refusal(self.shards, source.errors_shard, source.name, lower, upper)
                if error is not None:
                    raise error

    def _smallest(self, tick: Tick, due: Timestamp) -> Tick | None:
        """The tick up to just after the first change: then the query answers or fails.

        `due`: see `first_due`, which nobody knows once a tick has failed.
        """
        if tick.first:
            return tick
        at = first_change(self.flow, self.shards, tick.lower, tick.upper)
        at = min(due, at or tick.upper)
        return None if at >= tick.upper else replace(tick, upper=Timestamp(at + 1))

    def _whole(self, tick: Tick, held: tuple[str, ...]) -> tuple[Append, Append]:
        """The contents at a time of a change, or why there are none; `held` are the errors before.

        The errors are there until then. Where an input is not kept any more, there is an error too.
        """
        self.close()
        flow = self.flow
        since = readable_from(flow, self.shards, tick.lower)
        changes: list[tuple[str, int, int]] = []
        if not held and since > tick.lower:
            cause = f"its inputs can be read from {since} on"
            held = (encode(EvaluationError(flow.name, "22000", cause, flow.input_names)),)
            changes = [(held[0], tick.lower, 1)]
        at = self._tried_at(tick, since)
        if at is None:
            rows, now = Append(flow.output_shard, self._lower(tick), tick.upper, ()), held
        else:
            rows, now = self._contents_or_error(tick, at)
            changes += [(text, at, -1) for text in held if text not in now]
            changes += [(text, at, 1) for text in now if text not in held]
        self._fails = bool(now)
        return self._with_errors(rows, changes)

    def _tried_at(self, tick: Tick, since: Timestamp) -> Timestamp | None:
        """When to look whether the query succeeds; None: not in this tick."""
        if tick.first:
            return tick.lower
        waiting = self._changes(tick.lower, tick.upper).values()
        if sum(len(parts) for parts in waiting) > CHANGES_TRIED:
            return Timestamp(tick.upper - 1)
        at = first_change(self.flow, self.shards, tick.lower, tick.upper)
        if at is None and self.flow.plan.is_temporal:
            # The row may have ceased to be valid, and the program that knew when is gone.
            at = Timestamp(tick.upper - 1)
        if since > tick.lower:
            at = max(since, at or since)
        return at if at is not None and at < tick.upper else None

    def _contents_or_error(self, tick: Tick, at: Timestamp) -> tuple[Append, tuple[str, ...]]:
        flow = self.flow
        try:
            return self._contents(tick, at), ()
        except SlackwaterError as error:
            if not error.is_data_error:
                raise
            found = self._evaluation_error(error, at)
            nothing = Append(flow.output_shard, self._lower(tick), Timestamp(at + 1), ())
            return nothing, (encode(found),)

    def _evaluation_error(self, error: SlackwaterError, at: Timestamp) -> EvaluationError:
        """`error` of the contents at `at`, or that of the row that makes them fail, if one does."""
        flow, found = self.flow, None
        if error.condition not in INHERITED:
            inputs = self._collections(at)
            view = ViewContents(flow.plan.kept, flow.output, at, inputs.contents)
            found = self.engine.failing_row(view, few=inputs.few)
        if found is None:
            return EvaluationError.of(error, flow.name, flow.input_names)
        names = {str(g): source.name for g, source in flow.inputs.items()}
        row = called(found, names)
        return EvaluationError.of(found.error, flow.name, flow.input_names, row)

    def _with_errors(
        self, rows: Append, changes: Sequence[tuple[str, int, int]]
    ) -> tuple[Append, Append]:
        """The append of the rows, and that of changed errors, each with its time and diff."""
        shard_id = self.flow.errors_shard
        parts: tuple[NewPart, ...] = ()
        if changes:
            schema = ERRORS.update_schema()
            rows_of_errors = [dict(zip(schema.names, each, strict=True)) for each in changes]
            updates = pa.Table.from_pylist(rows_of_errors, schema=schema)
            parts = self.shards.new_parts(shard_id, updates)
        return rows, Append(shard_id, rows.lower, rows.upper, parts)

    # What has changed

    def _changes(self, lower: Timestamp, upper: Timestamp) -> _Changes:
        """What may have changed in the interval, of each input."""
        return {
            g: self.shards.parts_between(source.shard_id, lower, upper)
            for g, source in self.flow.inputs.items()
        }

    def _better_whole_at(self, changes: _Changes) -> Timestamp | None:
        """The first time at which so much changes that the view is better recomputed then."""
        found = changed_rows(part for parts in changes.values() for part in parts)
        if len(found) == 1 and not self._resident and self._cost_model.recompute_and_not_read():
            return found[0][0]
        for at, rows in found:
            if self._cost_model.may_recompute(rows) and self._cost_model.recompute(
                rows, self._input_rows(at)
            ):
                return at
        return None

    def _nothing_before(self, at: Timestamp, tick: Tick, changes: _Changes) -> bool:
        """Whether the contents stay what they are from the tick's lower until `at`."""
        first = min(part.min_time for parts in changes.values() for part in parts)
        return first >= at and self.first_due(tick.lower, at) >= at

    # By the program

    def _ticked(
        self, program: Program, tick: Tick, changes: _Changes, most_ms: int | None
    ) -> Append:
        flow = self.flow
        running = self._up_to(program, tick.lower)
        self._next_change = None
        # Another worker may have committed what this program has not seen.
        begin = min(self._reached, tick.lower)
        if begin < tick.lower:
            changes = self._changes(begin, tick.upper)
        every = [part for parts in changes.values() for part in parts]
        limits = self.limits
        upper = capped_upper(
            every,
            tick.lower,
            tick.upper,
            max_rows=limits.tick_rows,
            max_bytes=limits.tick_bytes,
        )
        deltas: dict[str, NamedUpdates] = {
            g: NamedUpdates(g, flow.inputs[g].desc, program.fields(g), parts, begin, upper)
            for g, parts in changes.items()
            if parts
        }
        self.scanned += sum(part.rows for part in every)
        before = None if self._resident else self._collections(Timestamp(begin - 1))
        if self._resident and self._rows_until_order <= 0:
            self._put_in_order(program, running)
        began_s = self.monotonic()
        ticked = running.tick(begin, upper, deltas, most_ms, before)
        took_us = self._us_since(began_s)
        self._is_slow = took_us > 1000 * limits.quick_ms
        # The interval may have been cut: what came later was brought, and not followed.
        followed = sum(part.rows for part in every if part.min_time < upper)
        if self._resident:
            self._rows_until_order -= followed
            self._cost_model.ticked(followed, took_us)
        else:
            self._cost_model.read(took_us)
            at = Timestamp(begin - 1)
            self.scanned += sum(self._rows_of(flow.inputs[GlobalId(g)], at) for g in ticked.scanned)
        self.load_us += ticked.load_us
        self.encode_us += took_us - ticked.load_us - sum(s.elapsed_us for s in ticked.steps)
        self._reached = max(self._reached, upper)
        self._next_change = ticked.next_change
        self.steps = tuple(
            replace(step, reads=reads)
            for step, reads in zip(ticked.steps, self._reads, strict=True)
        )
        self.by_program = True
        updates = ticked.updates.rename_columns(
            [*flow.output.stored_names, TIME_COLUMN, DIFF_COLUMN]
        )
        if begin < tick.lower:
            updates = updates.filter(pc.greater_equal(updates.column(TIME_COLUMN), tick.lower))
        return Append(flow.output_shard, tick.lower, upper, self._inline(updates))

    def _up_to(self, program: Program, lower: Timestamp) -> TickProgram:
        """The program, which can be told what has changed since it was asked last."""
        if self._reached <= min(lower, readable_from(self.flow, self.shards, Timestamp(0))):
            self.close()
        return self._hydrated(program, Timestamp(lower - 1))

    def _hydrated(self, program: Program, before: Timestamp) -> TickProgram:
        """The program; at first it is hydrated with the contents at `before`."""
        if self._running is None:
            self._resident = self._pause_ticks <= 0
            with ExitStack() as undo:
                began_s, resident = self.monotonic(), self._resident
                opened = self.engine.open_program(
                    self.flow.plan.kept, program, self.flow.name, before, resident
                )
                undo.callback(opened.close)
                self.plan_us += self._us_since(began_s)
                if resident or self.flow.plan.is_temporal:
                    self._next_change = self._loaded(opened, before)
                undo.pop_all()
            self._running, self._reached = opened, Timestamp(before + 1)
            self._runs_as(program)
            self._rows_until_order = 0
            if resident:
                self.out_of_memory, self._attempts = None, 0
        return self._running

    def _put_in_order(self, program: Program, running: TickProgram) -> None:
        """Lets the lookups meet as few rows as they can, until as much again has changed."""
        if not program.has_choice:
            self._rows_until_order = sys.maxsize
            return
        began_s, sizes = self.monotonic(), running.sizes()
        order = reordered(self.flow.plan.kept.plan, program, sizes)
        if order != self._order:
            running.reorder(order)
            self._runs_as(order)
        self._rows_until_order = max(self.limits.ordered_rows, sum(size.rows for size in sizes))
        self.plan_us += self._us_since(began_s)

    def _runs_as(self, program: Program) -> None:
        names = {str(g): source.name for g, source in self.flow.inputs.items()}
        self._order = program
        self._reads = read_by_steps(self.flow.plan.kept.plan, program, names)

    def _loaded(self, opened: TickProgram, before: Timestamp) -> Timestamp:
        began_s, rows = self.monotonic(), self._input_rows(before)
        self.scanned += rows
        due = opened.load(self._collections(before))
        took_us = self._us_since(began_s)
        self._cost_model.hydrated(rows, took_us)
        self.load_us += took_us
        return due

    def _give_up(self, error: SlackwaterError) -> None:
        """What the program looks up does not fit: others may end, so it is tried again later."""
        self.close()
        self.out_of_memory = error
        self._tried = True
        self._attempts += 1
        self._pause_ticks = min(LONGEST_PAUSE_TICKS, 2**self._attempts)
        _LOG.warning("no_memory_for_an_index", view=self.flow.name, error=str(error))

    # Computed as a whole

    def _recomputed(self, tick: Tick) -> Append:
        """Up to just after the first time at which something has changed."""
        at = first_change(self.flow, self.shards, tick.lower, tick.upper)
        if at is None:
            return Append(self.flow.output_shard, tick.lower, tick.upper, ())
        return self._contents(tick, at)

    def _recomputed_soon(self, tick: Tick, at: Timestamp) -> Append:
        """As `_recomputed`. `TickEnded`: it takes longer than was thought.

        Until it is done the program stays: it can follow what has changed instead.
        """
        rows = self._input_rows(at)
        most_ms = max(self.limits.whole_ms, self._cost_model.most_whole_us(rows) // 1000)
        began_s, read_before = self.monotonic(), self.scanned
        try:
            append = self._contents(tick, at, most_ms)
        except TickEnded:
            self.scanned = read_before
            self._cost_model.computed(rows, self._us_since(began_s))
            _LOG.info("recomputing_ended", view=self.flow.name, after_ms=most_ms)
            raise
        self.close()
        return append

    def _contents(self, tick: Tick, at: Timestamp, most_ms: int | None = None) -> Append:
        """The contents at `at`, as what they differ by from those just before the tick.

        `TickEnded` when it takes longer than `most_ms`.
        """
        flow = self.flow
        self._refuse_errors(at, Timestamp(at + 1))
        inputs, rows = self._collections(at), self._input_rows(at)
        self.scanned += rows
        recorded = None if tick.first else self._recorded(Timestamp(tick.lower - 1))
        view = ViewContents(flow.plan.kept, flow.output, at, inputs.contents, recorded)
        began_s = self.monotonic()
        if inputs.few:
            parts = self._inline(self.engine.collect_view(view, most_ms))
        else:
            directory = self.shards.shard_directory(flow.output_shard)
            files = self.engine.write_view(view, directory, most_ms)
            self.shards.blobs.settle(file.uri for file in files)
            parts = self._few_inline(tuple(file.part() for file in files if file.rows))
        took_us = self._us_since(began_s)
        self._cost_model.computed(rows, took_us)
        emitted = sum(part.rows for part in parts)
        self.steps = (StepRecord("recompute", "recompute", emitted, 0, took_us),)
        self._fails = False
        return Append(flow.output_shard, self._lower(tick), Timestamp(at + 1), parts)

    def _lower(self, tick: Tick) -> Timestamp:
        """What is recorded ends here; if another worker was first, the append does not fit then."""
        if not tick.first:
            return tick.lower
        return min(tick.lower, self.shards.state(self.flow.output_shard).upper)

    def _recorded(self, at: Timestamp) -> Contents:
        """The updates of the output up to `at`."""
        output = Input(self.flow.output_shard, self.flow.output)
        self.scanned += self._rows_of(output, at)
        parts = self.shards.parts_at(output.shard_id, at)
        return Contents(output.desc, relation_json(parts, output.desc, upper=Timestamp(at + 1)))

    def _input_rows(self, at: Timestamp) -> int:
        return sum(self._rows_of(source, at) for source in self.flow.inputs.values())

    def _rows_of(self, source: Input, at: Timestamp) -> int:
        return sum(part.rows for part in self.shards.parts_at(source.shard_id, at))

    def _collections(self, at: Timestamp) -> InputContents:
        contents: dict[str, Contents] = {}
        for global_id, source in self.flow.inputs.items():
            parts = self.shards.parts_at(source.shard_id, at)
            relation = relation_json(parts, source.desc, as_of=at)
            contents[global_id] = Contents(source.desc, relation)
        return InputContents(at, contents, few=self._input_rows(at) < self.limits.few_rows)

    def _inline(self, updates: pa.Table) -> tuple[NewPart, ...]:
        if updates.num_rows == 0:
            return ()
        began_s = self.monotonic()
        conformed = reading.conformed(updates, self.flow.output)
        parts = self.shards.new_parts(self.flow.output_shard, conformed)
        self.encode_us += self._us_since(began_s)
        return parts

    def _few_inline(self, parts: tuple[NewPart, ...]) -> tuple[NewPart, ...]:
        """Few rows out of much input go inline: whoever reads them needs no Spark job then."""
        if not parts or sum(part.rows for part in parts) > self.limits.inline_rows:
            return parts
        flow = self.flow
        made = self.shards.new_parts(flow.output_shard, self.shards.read(parts, flow.output))
        for part in parts:
            if isinstance(part.body, FileBody):
                self.shards.blobs.delete(part.body.uri)
        return made

    def _us_since(self, began_s: float) -> int:
        return int((self.monotonic() - began_s) * 1_000_000)


def first_change(
    flow: Dataflow, shards: Shards, lower: Timestamp, upper: Timestamp
) -> Timestamp | None:
    """The first time in ``[lower, upper)`` at which an input of the dataflow has an update."""
    times: list[int] = []
    for shard_id, desc in (each for source in flow.inputs.values() for each in source.shards):
        times.extend(_first_times(shards, shard_id, desc, lower, upper))
    return Timestamp(min(times)) if times else None


def _first_times(
    shards: Shards, shard_id: int, desc: RelationDesc, lower: Timestamp, upper: Timestamp
) -> list[int]:
    parts = shards.parts_between(shard_id, lower, upper)
    times: list[int] = [part.min_time for part in parts if part.min_time >= lower]
    spanning = [part for part in parts if part.min_time < lower]
    if spanning:
        updates = shards.read(spanning, desc, lower=lower, upper=upper)
        earliest = pc.min(updates.column(TIME_COLUMN)).as_py()
        times.extend(() if earliest is None else (earliest,))
    return times
