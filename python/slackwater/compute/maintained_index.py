"""An index that is maintained: the arrangement in the driver that queries read."""

from __future__ import annotations

from dataclasses import dataclass, field

from slackwater.compute.cost_model import CostModel
from slackwater.compute.dataflow import Dataflow, Shards
from slackwater.compute.engine import Engine, TickEnded
from slackwater.compute.flow_shards import FlowShards
from slackwater.compute.limits import Limits
from slackwater.compute.maintained_program import MaintainedProgram
from slackwater.compute.records import StepRecord
from slackwater.compute.schedule import Tick
from slackwater.compute.tick_outcome import Followed, TickMeter, TickOutcome
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import TIMESTAMP_MIN, Timestamp


@dataclass(slots=True)
class MaintainedIndex:
    """Keeps an index up to date. Not thread-safe, but for `upper` and `since`.

    The promise of a tick: for every t from the index's since to before the tick's upper, the driver
    finds for each key the rows of the relation at t. The first tick hydrates the index at the last
    complete time of its interval: nobody could read it before.

    While there is no memory for the index, or a key cannot be computed, the driver has no index and
    queries read the relation itself. It is hydrated anew, some ticks later.
    """

    flow: Dataflow
    shards: FlowShards
    program: MaintainedProgram
    since: Timestamp = field(default=TIMESTAMP_MIN, init=False)
    """Times before it are not read any more. Any thread may move it forward."""
    _upper: Timestamp = field(default=TIMESTAMP_MIN, init=False)
    _is_slow: bool = field(default=False, init=False)

    @classmethod
    def of(cls, flow: Dataflow, shards: Shards, engine: Engine, limits: Limits) -> MaintainedIndex:
        """The index of a dataflow that nothing is known of yet."""
        inputs = FlowShards(flow, shards, limits)
        costs = CostModel(limits.incremental_below_rows)
        return cls(flow, inputs, MaintainedProgram(inputs, engine, costs))

    @property
    def upper(self) -> Timestamp:
        """The first time at which the index may still change."""
        return self._upper

    @property
    def program_in_driver(self) -> str | None:
        """The name by which queries find the index; None: it is not there. Any thread may ask."""
        return self.program.handle if self.program.residency.is_resident else None

    @property
    def is_open(self) -> bool:
        """Whether the driver has the index."""
        return self.program.is_open and self.program.residency.is_resident

    def first_due(self, lower: Timestamp, upper: Timestamp) -> Timestamp:
        """As `MaintainedProgram.first_due`."""
        return self.program.first_due(lower, upper)

    def is_quick(self, tick: Tick) -> bool:
        """Whether the tick only follows changes, and few: others may wait for it."""
        if not self.is_open or self._is_slow:
            return False
        return self.shards.has_few_changes(tick.lower, tick.upper)

    @property
    def needs_hydration(self) -> bool:
        """Whether the next tick hydrates the index."""
        return not self.program.is_open and not self.program.residency.is_paused

    @property
    def can_hydrate_ahead(self) -> bool:
        """No: the first tick does it, and a later one at its own time."""
        return False

    def hydrate(self, meter: TickMeter) -> None:
        """Does nothing: see `can_hydrate_ahead`."""

    def tick(self, tick: Tick, meter: TickMeter, most_ms: int | None = None) -> TickOutcome:
        """Follows the changes of the interval, or of its beginning, or hydrates the index.

        The outcome has nothing to commit. Raises what `MaintainedProgram.tick` raises but for
        SLACKWATER_INDEX_MEMORY.
        """
        meter.restart()
        self.program.begin_tick()
        try:
            followed = self._followed(tick, meter, most_ms) if self.is_open else None
            if followed is not None:
                return self._outcome(followed.upper, followed.steps)
            if not self.program.residency.is_paused:
                self.program.hydrate(self.flow.program, Timestamp(tick.upper - 1), meter)
        except SlackwaterError as error:
            self.program.close()
            if error.condition != "SLACKWATER_INDEX_MEMORY":
                raise
            self.program.give_up(error)
        return self._outcome(tick.upper, ())

    def _followed(self, tick: Tick, meter: TickMeter, most_ms: int | None) -> Followed | None:
        """The changes that the index took in; None: there are too many, and it is closed."""
        changes = self.shards.changes(tick.lower, tick.upper)
        try:
            followed = self.program.tick(self.flow.program, tick, changes, most_ms, meter)
        except TickEnded as ended:
            if ended.reason == "large":
                self.program.close()
                return None
            self._is_slow = ended.reason == "slow"
            raise
        self._is_slow = followed.took_us > 1000 * self.shards.limits.quick_ms
        return followed

    def _outcome(self, upper: Timestamp, steps: tuple[StepRecord, ...]) -> TickOutcome:
        refused = self.program.residency.out_of_memory
        return TickOutcome((), upper, steps, bool(steps), refused)

    def committed(self, upper: Timestamp) -> None:
        """The index has all before `upper`; what nobody reads any more is given back."""
        self._upper = upper
        self.program.committed(Timestamp(max(1, min(upper, self.since))))

    def advanced(self, lower: Timestamp, upper: Timestamp) -> None:
        """Nothing has changed in the interval, neither the inputs nor by itself."""
        self.program.advanced(lower, upper)
        self._upper = upper

    def end(self) -> None:
        """Gives back everything: the index is not maintained any more."""
        self.program.close()
        self.program.engine.forget_plan(self.flow.plan.kept.plan_id)
