"""A tick: the updates of a view that follow from those of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from slackwater.compute.cost_model import CostModel, changed_rows
from slackwater.compute.dataflow import Dataflow, Shards
from slackwater.compute.engine import Engine, TickEnded
from slackwater.compute.flow_shards import Changes, FlowShards
from slackwater.compute.limits import Limits
from slackwater.compute.maintained_program import MaintainedProgram
from slackwater.compute.recomputation import Recomputation
from slackwater.compute.schedule import Tick, capped_upper
from slackwater.compute.tick_outcome import Computed, TickMeter, TickOutcome
from slackwater.persist.client import Append
from slackwater.persist.error_shards import errors_at
from slackwater.planner.delta.program import Program
from slackwater.repr.dataflow_error import EvaluationError, encode
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.repr.frontier import Timestamp

CHANGES_TRIED = 16
"""While a query fails, it is computed at each of so many changes; of more at the last one only."""


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

    Not guaranteed: that a tick covers its whole interval, and that what it computed is recorded:
    another worker may commit the same interval first.
    """

    flow: Dataflow
    shards: FlowShards
    program: MaintainedProgram
    recomputation: Recomputation
    _fails: bool = field(default=False, init=False)
    """Whether the query failed at the last time at which it was computed as a whole."""
    _careful_until: Timestamp = field(default=Timestamp(0), init=False)
    """Up to here a tick has failed: until then there is one for each time of a change."""
    _compares: bool = field(init=False)
    """Whether the output may differ from that of the plan until it is compared."""
    _is_slow: bool = field(default=False, init=False)
    """Whether the last tick took longer than others may wait."""
    _inherited: tuple[str, ...] = field(default=(), init=False)
    """The ids of plans of earlier views, under which the program was opened."""

    def __post_init__(self) -> None:
        self._compares = self.flow.view.plan_changed

    @classmethod
    def of(cls, flow: Dataflow, shards: Shards, engine: Engine, limits: Limits) -> RunningView:
        """The view of a dataflow that nothing is known of yet. `engine` has the view's settings."""
        own, costs = FlowShards(flow, shards, limits), CostModel(limits.incremental_below_rows)
        program = MaintainedProgram(own, engine, costs)
        return cls(flow, own, program, Recomputation(own, engine, costs))

    def inherit(self, earlier: RunningView) -> bool:
        """Goes on with the program of a view that has the same plan and is not maintained any more.

        False, and no effect: the plans differ.
        """
        own, other = self.flow.plan, earlier.flow.plan
        if own.kept.plan != other.kept.plan or own.program != other.program:
            return False
        self.program.close()
        self.program = earlier.program
        self.program.shards = self.shards
        self.recomputation = replace(self.recomputation, cost_model=earlier.program.cost_model)
        self._inherited = (*earlier._inherited, other.kept.plan_id)
        return True

    def first_due(self, lower: Timestamp, upper: Timestamp) -> Timestamp:
        """As `MaintainedProgram.first_due`."""
        return self.program.first_due(lower, upper)

    def is_quick(self, tick: Tick) -> bool:
        """Whether the tick only follows changes, and few: others may wait for it."""
        if tick.first or self._compares or self._is_slow or not self.program.is_ready(tick.lower):
            return False
        return self.shards.has_few_changes(tick.lower, tick.upper)

    @property
    def needs_hydration(self) -> bool:
        """Whether the next tick hydrates the program."""
        has_program = self.flow.plan.program is not None
        return has_program and not self._fails and self.program.needs_hydration

    @property
    def can_hydrate_ahead(self) -> bool:
        """Whether the next tick would have to hydrate the program, and nobody has tried it yet."""
        if not self.needs_hydration or self.program.hydration_tried or not self.flow.inputs:
            return False
        return self.shards.output_upper > self.flow.as_of

    def hydrate(self, meter: TickMeter) -> None:
        """Makes the program ready for the next tick. Raises what `tick` raises."""
        program = self.flow.plan.program
        if program is not None:
            self.program.hydrate(program, Timestamp(self.shards.output_upper - 1), meter)

    def tick(self, tick: Tick, meter: TickMeter, most_ms: int | None = None) -> TickOutcome:
        """Computes the updates of the rows and of the errors.

        It may end before ``tick.upper``: another one does the rest. Nothing is committed. Raises
        what the engine and the shards raise, but no error of a row; of a view with a temporal
        filter SLACKWATER_INDEX_MEMORY when there is no memory for the rows that wait, and
        SLACKWATER_TEMPORAL_FILTER when it has none; `TickEnded` when it takes longer than
        `most_ms`, or the dataflow is removed.
        """
        attempt: TickOutcome | Tick = tick
        while isinstance(attempt, Tick):
            meter.restart()
            attempt = self._attempt(attempt, meter, most_ms)
        return attempt

    def committed(self, upper: Timestamp) -> None:
        """The updates up to `upper` are durable."""
        self._compares = False
        self.program.committed(upper)

    def advanced(self, lower: Timestamp, upper: Timestamp) -> None:
        """Nothing has changed in the interval, neither the inputs nor by itself."""
        self.program.advanced(lower, upper)

    @property
    def upper(self) -> Timestamp:
        """The first time at which the view may still change."""
        return self.shards.output_upper

    def end(self) -> None:
        """Gives back everything: the dataflow is not maintained any more."""
        self.program.close()
        for plan_id in (*self._inherited, self.flow.plan.kept.plan_id):
            self.program.engine.forget_plan(plan_id)

    def _attempt(self, tick: Tick, meter: TickMeter, most_ms: int | None) -> TickOutcome | Tick:
        """The outcome of the tick; or a smaller tick to try, since this one failed."""
        held: tuple[str, ...] = ()
        if not tick.first:
            errors_shard, before = self.flow.view.errors_shard, Timestamp(tick.lower - 1)
            held = errors_at(self.shards.shards.reads, errors_shard, before)
        if held or self.shards.readable_from(tick.lower) > tick.lower:
            return self._whole(tick, held, meter)
        due = self.first_due(tick.lower, tick.upper)
        if tick.lower < self._careful_until:
            tick = self._smallest(tick, due) or tick
        try:
            return self._outcome(self._rows(tick, meter, most_ms), ())
        except SlackwaterError as error:
            smallest = self._smallest(tick, due) if error.is_data_error else None
            if smallest is None:
                raise
        self._careful_until = tick.upper
        if smallest != tick:
            return smallest
        if most_ms is not None and not self.flow.plan.is_temporal:
            # To compute the query as a whole, and to look for the row, is nothing to wait for.
            self._is_slow = True
            raise TickEnded("slow")
        return self._whole(tick, (), meter)

    # The rows, where the query does not fail

    def _rows(self, tick: Tick, meter: TickMeter, most_ms: int | None) -> Computed:
        """The updates of the rows, if the query fails at no time of the tick."""
        program = self.flow.plan.program
        if program is None and self.flow.plan.is_temporal:
            name, reason = self.flow.name, self.flow.plan.reason
            raise user_error("SLACKWATER_TEMPORAL_FILTER", objectName=name, reason=reason)
        if tick.first:
            return self._succeeded(self.recomputation.contents(tick, tick.lower, meter))
        self.shards.refuse_errors(tick.lower, tick.upper)
        if self._compares:
            self.program.close()
            return self._succeeded(self.recomputation.contents(tick, tick.lower, meter))
        if program is None:
            return self._recomputed(tick, meter)
        computed: Computed | None = None
        while computed is None:
            computed = self._cheapest(program, tick, meter, most_ms)
        return computed

    def _cheapest(
        self, program: Program, tick: Tick, meter: TickMeter, most_ms: int | None
    ) -> Computed | None:
        """The updates, by the program or by a recomputation, whichever costs less.

        None: the program was given up, for lack of memory. From the next call on it reads in each
        tick what it looks up.
        """
        self.program.begin_tick()
        changes = self.shards.changes(tick.lower, tick.upper)
        whole = self._better_whole_at(changes)
        if whole is not None:
            if self._nothing_before(whole, tick, changes):
                with suppress(TickEnded):
                    computed = self._succeeded(self.recomputation.soon(tick, whole, meter))
                    self.program.close()
                    return computed
            else:
                tick = replace(tick, upper=whole)
                changes = self.shards.changes(tick.lower, tick.upper)
        try:
            return self._followed(program, tick, changes, most_ms, meter)
        except SlackwaterError as error:
            if error.condition != "SLACKWATER_INDEX_MEMORY":
                raise
            if not self.program.residency.is_resident:
                self.program.close()
                raise
            self.program.give_up(error)
            return None

    def _followed(
        self,
        program: Program,
        tick: Tick,
        changes: Changes,
        most_ms: int | None,
        meter: TickMeter,
    ) -> Computed:
        """The updates by the program, of a part of the tick if it is too large as a whole.

        What changes at one time and is too large for the driver is recomputed, by executors.
        """
        try:
            followed = self.program.tick(program, tick, changes, most_ms, meter)
        except TickEnded as ended:
            if ended.reason != "large":
                self._is_slow = True
                raise
            half = self._half(tick, changes)
            if half is not None:
                of_half = self.shards.changes(half.lower, half.upper)
                return self._followed(program, half, of_half, most_ms, meter)
            due = self.first_due(tick.lower, tick.upper)
            self.program.close()
            return self._recomputed(self._smallest(tick, due) or tick, meter)
        self._is_slow = followed.took_us > 1000 * self.shards.limits.quick_ms
        written = self.shards.inline(followed.updates, meter)
        append = Append(self.flow.view.shard_id, tick.lower, followed.upper, written)
        return Computed(append, followed.steps, by_program=True)

    def _half(self, tick: Tick, changes: Changes) -> Tick | None:
        """The beginning of the tick with half of its changes; None: they are all at one time."""
        parts = [p for each in changes.values() for p in each if p.min_time < tick.upper]
        rows = sum(part.rows for part in parts) // 2
        most = self.shards.limits.tick_bytes
        upper = capped_upper(parts, tick.lower, tick.upper, max_rows=rows, max_bytes=most)
        return replace(tick, upper=upper) if upper < tick.upper else None

    def _better_whole_at(self, changes: Changes) -> Timestamp | None:
        """The first time at which so much changes that the view is better recomputed then."""
        found = changed_rows(part for parts in changes.values() for part in parts)
        costs, residency = self.program.cost_model, self.program.residency
        if len(found) == 1 and not residency.is_resident and costs.recompute_and_not_read():
            return found[0][0]
        for at, rows in found:
            if costs.may_recompute(rows) and costs.recompute(rows, self.shards.input_rows(at)):
                return at
        return None

    def _nothing_before(self, at: Timestamp, tick: Tick, changes: Changes) -> bool:
        """Whether the contents stay what they are from the tick's lower until `at`."""
        first = min(part.min_time for parts in changes.values() for part in parts)
        return first >= at and self.first_due(tick.lower, at) >= at

    def _recomputed(self, tick: Tick, meter: TickMeter) -> Computed:
        """The updates of the tick, or of its beginning, without the program.

        Nothing changes by itself before the last time of the tick.
        """
        if self.flow.plan.is_temporal:
            at = Timestamp(tick.upper - 1)
            return self._succeeded(self.recomputation.contents(tick, at, meter))
        return self._succeeded(self.recomputation.until_change(tick, meter))

    def _succeeded(self, computed: Computed) -> Computed:
        """Notes that the query has not failed, if it was computed as a whole."""
        if computed.steps:
            self._fails = False
        return computed

    # Errors

    def _smallest(self, tick: Tick, due: Timestamp) -> Tick | None:
        """The tick up to just after the first change: then the query answers or fails.

        `due` is that of `first_due` before the tick; nobody knows it once the tick has failed.
        """
        if tick.first:
            return tick
        at = self.shards.first_change(tick.lower, tick.upper)
        at = min(due, at or tick.upper)
        return None if at >= tick.upper else replace(tick, upper=Timestamp(at + 1))

    def _whole(self, tick: Tick, held: tuple[str, ...], meter: TickMeter) -> TickOutcome:
        """The contents at a time of a change, or why there are none; `held` are the errors before.

        The errors are there until then. Where an input is not kept any more, there is an error too.
        """
        self.program.close()
        flow = self.flow
        since = self.shards.readable_from(tick.lower)
        changes: list[tuple[str, int, int]] = []
        if not held and since > tick.lower:
            cause = f"its inputs can be read from {since} on"
            held = (encode(EvaluationError(flow.name, "22000", cause, flow.input_names)),)
            changes = [(held[0], tick.lower, 1)]
        at = self._tried_at(tick, since)
        if at is None:
            computed, now = Computed(self.recomputation.nothing(tick, tick.upper)), held
        else:
            computed, now = self._contents_or_error(tick, at, meter)
            changes += [(text, at, -1) for text in held if text not in now]
            changes += [(text, at, 1) for text in now if text not in held]
        self._fails = bool(now)
        return self._outcome(computed, changes)

    def _tried_at(self, tick: Tick, since: Timestamp) -> Timestamp | None:
        """When to look whether the query succeeds; None: not in this tick."""
        if tick.first:
            return tick.lower
        waiting = self.shards.changes(tick.lower, tick.upper).values()
        if sum(len(parts) for parts in waiting) > CHANGES_TRIED:
            return Timestamp(tick.upper - 1)
        at = self.shards.first_change(tick.lower, tick.upper)
        if at is None and self.flow.plan.is_temporal:
            # The row may have ceased to be valid, and the program that knew when is gone.
            at = Timestamp(tick.upper - 1)
        if since > tick.lower:
            at = max(since, at or since)
        return at if at is not None and at < tick.upper else None

    def _contents_or_error(
        self, tick: Tick, at: Timestamp, meter: TickMeter
    ) -> tuple[Computed, tuple[str, ...]]:
        try:
            return self.recomputation.contents(tick, at, meter), ()
        except SlackwaterError as error:
            if not error.is_data_error:
                raise
            found = self.recomputation.failure(error, at)
            nothing = self.recomputation.nothing(tick, Timestamp(at + 1))
            return Computed(nothing), (encode(found),)

    def _outcome(self, computed: Computed, changes: Sequence[tuple[str, int, int]]) -> TickOutcome:
        """The outcome with an append of changed errors, each with its time and diff."""
        shard_id, parts = self.flow.view.errors_shard, self.shards.error_parts(changes)
        errors = Append(shard_id, computed.rows.lower, computed.rows.upper, parts)
        return TickOutcome(
            (computed.rows, errors),
            computed.rows.upper,
            computed.steps,
            computed.by_program,
            self.program.residency.out_of_memory,
        )
