"""A subscription that is maintained: the changes of a query, which nobody stores."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from slackwater.compute.cost_model import CostModel
from slackwater.compute.dataflow import Dataflow, Shards
from slackwater.compute.engine import Engine, TickEnded
from slackwater.compute.flow_shards import FlowShards
from slackwater.compute.limits import Limits
from slackwater.compute.maintained_program import MaintainedProgram
from slackwater.compute.schedule import Tick
from slackwater.compute.tick_outcome import Given, TickMeter, TickOutcome
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import TIMESTAMP_MAX, TIMESTAMP_MIN, Timestamp


@dataclass(slots=True)
class MaintainedSubscription:
    """Follows the changes of a query after the dataflow's as-of. Not thread-safe, but for `upper`.

    The promise of the outcomes of its ticks: for every t from the as-of to before the upper of the
    last one::

        rows of the query at the as-of + all that was given, up to t  =  rows of the query at t

    It ends where it cannot follow a change: the query fails then, or too much changes at once, or
    there is no memory for the rows that wait for their times. The last that is given says why.
    """

    flow: Dataflow
    shards: FlowShards
    program: MaintainedProgram
    _upper: Timestamp = field(default=TIMESTAMP_MIN, init=False)
    _is_slow: bool = field(default=False, init=False)

    @classmethod
    def of(
        cls, flow: Dataflow, shards: Shards, engine: Engine, limits: Limits
    ) -> MaintainedSubscription:
        """The subscription of a dataflow that nothing is known of yet."""
        inputs = FlowShards(flow, shards, limits)
        costs = CostModel(limits.incremental_below_rows)
        return cls(flow, inputs, MaintainedProgram(inputs, engine, costs))

    @property
    def upper(self) -> Timestamp:
        """The first time of which nothing was given yet."""
        return self._upper

    def first_due(self, lower: Timestamp, upper: Timestamp) -> Timestamp:
        """As `MaintainedProgram.first_due`."""
        return self.program.first_due(lower, upper)

    def is_quick(self, tick: Tick) -> bool:
        """Whether the tick only follows changes, and few: others may wait for it."""
        if tick.first or self._is_slow or not self.program.is_ready(tick.lower):
            return False
        return self.shards.has_few_changes(tick.lower, tick.upper)

    @property
    def needs_hydration(self) -> bool:
        """Whether the next tick hydrates the program."""
        return self.program.needs_hydration

    @property
    def can_hydrate_ahead(self) -> bool:
        """Whether the next tick would have to hydrate the program, and nobody has tried it yet."""
        is_tried = self.program.hydration_tried
        return self._upper > self.flow.as_of and self.needs_hydration and not is_tried

    def hydrate(self, meter: TickMeter) -> None:
        """Makes the program ready for the next tick. Raises what `tick` raises."""
        self.program.hydrate(self.flow.program, Timestamp(self._upper - 1), meter)

    def tick(self, tick: Tick, meter: TickMeter, most_ms: int | None = None) -> TickOutcome:
        """The changes of the interval, or of its beginning. Nothing is to be committed.

        Raises what `MaintainedProgram.tick` raises, but no error of a row, nor that there is no
        memory; `TickEnded` when it takes longer than `most_ms`, or the dataflow is removed.
        """
        lower = Timestamp(max(tick.lower, self.flow.as_of + 1))
        if lower >= tick.upper:
            return self._outcome(tick.upper, Given())
        attempt: TickOutcome | Tick = replace(tick, lower=lower)
        while isinstance(attempt, Tick):
            meter.restart()
            attempt = self._attempt(attempt, meter, most_ms)
        return attempt

    def committed(self, upper: Timestamp) -> None:
        """All before `upper` was given."""
        self._upper = upper
        if upper < TIMESTAMP_MAX:
            self.program.committed(upper)

    def advanced(self, lower: Timestamp, upper: Timestamp) -> None:
        """Nothing has changed in the interval, neither the inputs nor by itself."""
        self.program.advanced(lower, upper)
        self._upper = upper

    def end(self) -> None:
        """Gives back everything: nobody follows the query any more."""
        self.program.close()
        self.program.engine.forget_plan(self.flow.plan.kept.plan_id)

    def _attempt(self, tick: Tick, meter: TickMeter, most_ms: int | None) -> TickOutcome | Tick:
        """The outcome of the tick, or the tick to try instead."""
        due = self.first_due(tick.lower, tick.upper)
        self.program.begin_tick()
        try:
            return self._followed(tick, meter, most_ms)
        except TickEnded as ended:
            self._is_slow = ended.reason == "slow"
            if ended.reason != "large":
                raise
            reason = "too much changes at once"
        except SlackwaterError as error:
            has_no_memory = error.condition == "SLACKWATER_INDEX_MEMORY"
            if has_no_memory and self.program.residency.is_resident:
                self.program.give_up(error)
                return tick
            if not has_no_memory and not error.is_data_error:
                raise
            reason = str(error)
        # The changes before the one that cannot be followed are given first.
        at = min(due, self.shards.first_change(tick.lower, tick.upper) or tick.upper)
        if at + 1 < tick.upper:
            return replace(tick, upper=Timestamp(at + 1))
        self.program.close()
        return self._outcome(TIMESTAMP_MAX, Given(error=reason))

    def _followed(self, tick: Tick, meter: TickMeter, most_ms: int | None) -> TickOutcome:
        self.shards.refuse_errors(tick.lower, tick.upper)
        changes = self.shards.changes(tick.lower, tick.upper)
        followed = self.program.tick(self.flow.program, tick, changes, most_ms, meter)
        self._is_slow = followed.took_us > 1000 * self.shards.limits.quick_ms
        outcome = self._outcome(followed.upper, Given(followed.updates))
        return replace(outcome, steps=followed.steps, by_program=True)

    def _outcome(self, upper: Timestamp, given: Given) -> TickOutcome:
        refused = self.program.residency.out_of_memory
        return TickOutcome((), upper, (), False, refused, given)
