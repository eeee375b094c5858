"""A view with a refresh schedule: at each refresh it takes over what its query gives then."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from slackwater.compute.cost_model import CostModel
from slackwater.compute.dataflow import Dataflow, Shards
from slackwater.compute.engine import Engine
from slackwater.compute.flow_shards import FlowShards
from slackwater.compute.limits import Limits
from slackwater.compute.recomputation import Recomputation
from slackwater.compute.schedule import Tick
from slackwater.compute.tick_outcome import Computed, TickMeter, TickOutcome
from slackwater.persist.client import Append
from slackwater.persist.error_shards import errors_at
from slackwater.repr.dataflow_error import EvaluationError, encode
from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.refresh import RefreshSchedule


@dataclass(slots=True)
class RefreshedView:
    """A view that is refreshed at the times of its schedule. Not thread-safe.

    The promise is that of `RefreshSchedule`, or where its query fails at r, that the view has an
    error from r up to the next refresh. A tick begins at a refresh r. Let c be the first time after
    r at which an input changes, or the end of the tick if none does before; then its interval is::

        [r, the first refresh that is not before c)

    since each refresh before c would take over the same. A query that uses mz_now() is computed at
    each refresh.

    It keeps nothing in the driver: between two refreshes it costs nothing, and a refresh computes
    the query as a whole and writes what the contents differ by.
    """

    flow: Dataflow
    shards: FlowShards
    recomputation: Recomputation
    _compares: bool = field(init=False)
    """Whether the output may differ from that of the plan until it is compared."""

    def __post_init__(self) -> None:
        self._compares = self.flow.view.plan_changed

    @classmethod
    def of(cls, flow: Dataflow, shards: Shards, engine: Engine, limits: Limits) -> RefreshedView:
        """The view of a dataflow that nothing is known of yet. `engine` has the view's settings."""
        own = FlowShards(flow, shards, limits)
        costs = CostModel(limits.incremental_below_rows)
        return cls(flow, own, Recomputation(own, engine, costs))

    @property
    def upper(self) -> Timestamp:
        """The next refresh."""
        return self.shards.output_upper

    def first_due(self, lower: Timestamp, upper: Timestamp) -> Timestamp:
        """`lower`, a refresh, if it may take over something; else `upper`."""
        return lower if self._may_change(lower) else upper

    def is_quick(self, tick: Tick) -> bool:
        """No: it reads its inputs as a whole."""
        return False

    @property
    def needs_hydration(self) -> bool:
        """No: a refresh keeps nothing for the next one."""
        return False

    @property
    def can_hydrate_ahead(self) -> bool:
        """No, as `needs_hydration`."""
        return False

    def hydrate(self, meter: TickMeter) -> None:
        """Does nothing: see `needs_hydration`."""

    def tick(self, tick: Tick, meter: TickMeter, most_ms: int | None = None) -> TickOutcome:
        """The refresh at the tick's lower. Nothing is committed.

        Raises what the engine and the shards raise, but no error of a row.
        """
        meter.restart()
        at = tick.lower
        held: tuple[str, ...] = ()
        if not tick.first:
            errors_shard, before = self.flow.view.errors_shard, Timestamp(at - 1)
            held = errors_at(self.shards.shards.reads, errors_shard, before)
        computed, now = self._computed(tick, meter, held)
        changes = [(text, at, -1) for text in held if text not in now]
        changes += [(text, at, 1) for text in now if text not in held]
        upper = self._until(tick)
        rows = replace(computed.rows, upper=upper)
        parts = self.shards.error_parts(changes)
        errors = Append(self.flow.view.errors_shard, rows.lower, upper, parts)
        return TickOutcome((rows, errors), upper, computed.steps, False, None)

    def committed(self, upper: Timestamp) -> None:
        """The refresh is durable."""
        self._compares = False

    def advanced(self, lower: Timestamp, upper: Timestamp) -> None:
        """The refreshes of the interval change nothing."""

    def end(self) -> None:
        """Gives back the plan: the dataflow is not maintained any more."""
        self.recomputation.engine.forget_plan(self.flow.plan.kept.plan_id)

    @property
    def _schedule(self) -> RefreshSchedule:
        if self.flow.refresh is None:
            raise FatalError(f"{self.flow.name} has no refresh schedule")
        return self.flow.refresh

    def _computed(
        self, tick: Tick, meter: TickMeter, held: tuple[str, ...]
    ) -> tuple[Computed, tuple[str, ...]]:
        """The updates at the refresh, and the errors that the view has from then on."""
        at = tick.lower
        nothing = Computed(self.recomputation.nothing(tick, Timestamp(at + 1)))
        if not tick.first and not self._may_change(at):
            return nothing, held
        since = self.shards.readable_from(at)
        if since > at:
            cause = f"its inputs can be read from {since} on"
            error = EvaluationError(self.flow.name, "22000", cause, self.flow.input_names)
            return nothing, (encode(error),)
        try:
            return self.recomputation.contents(tick, at, meter), ()
        except SlackwaterError as error:
            if not error.is_data_error:
                raise
            return nothing, (encode(self.recomputation.failure(error, at)),)

    def _until(self, tick: Tick) -> Timestamp:
        """The first refresh that may take over something else than the one of the tick."""
        after = Timestamp(tick.lower + 1)
        if self.flow.plan.is_temporal:
            change = after
        else:
            change = self.shards.first_change(after, tick.upper) or tick.upper
        return Timestamp(self._schedule.upper(Frontier(change)).value)

    def _may_change(self, at: Timestamp) -> bool:
        """Whether the refresh at `at`, which is not the first, may take over something."""
        last = self._schedule.before(at)
        if self._compares or self.flow.plan.is_temporal or last is None:
            return True
        # What has happened up to the last refresh has been taken over.
        since_then, end = Timestamp(last + 1), Timestamp(at + 1)
        return any(
            self.shards.shards.reads.parts_between(shard_id, since_then, end)
            for source in self.flow.inputs.values()
            for shard_id, _ in source.shards
        )
