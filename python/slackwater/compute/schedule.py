"""Which dataflows tick, over which intervals, and which only advance. No I/O, no clock.

The frontiers are read anew for each round, so nothing here has to be told what others did: when
another replica was first, the next round begins where that one ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from slackwater.persist.parts import Part
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import TIMESTAMP_MAX, Timestamp
from slackwater.repr.ids import GlobalId

FIRST_BACKOFF_MS = 100
LONGEST_BACKOFF_MS = 30_000


@dataclass(frozen=True, slots=True)
class Flow:
    """A dataflow as the schedule sees it. `inputs` may be other flows."""

    global_id: GlobalId
    inputs: tuple[GlobalId, ...]
    as_of: Timestamp


@dataclass(frozen=True, slots=True)
class Tick:
    """Compute the updates of ``[lower, upper)``. `first`: nothing was recorded before.

    `collapse`: the contents at the times before ``upper - 1`` cannot be computed; all changes
    come at that time.
    """

    global_id: GlobalId
    lower: Timestamp
    upper: Timestamp
    first: bool
    collapse: bool = False

    @property
    def exact_from(self) -> Timestamp:
        """The first time of the interval at which the tick makes the contents exact."""
        return Timestamp(self.upper - 1) if self.collapse else self.lower


@dataclass(frozen=True, slots=True)
class Round:
    """`advances` move uppers without data, in one transaction; then each of `ticks` runs."""

    advances: Mapping[GlobalId, Timestamp]
    ticks: tuple[Tick, ...]


@dataclass(frozen=True, slots=True)
class Trouble:
    """A dataflow that failed.

    `single`: also over the smallest interval, so that the contents at its first time cannot be
    computed. `lower`, `upper`: the interval that failed last. `retry_at_ms`: None: when an
    input changes; else then.
    """

    error: SlackwaterError
    lower: Timestamp
    upper: Timestamp
    single: bool
    attempts: int
    retry_at_ms: int | None


HasData = Callable[[GlobalId, Timestamp, Timestamp], bool]
"""Whether the flow may change in the interval: an input of it does, or a row's time comes."""

NextChange = Callable[[GlobalId, Timestamp, Timestamp], Timestamp]
"""The first time in the interval at which the flow may change; its upper if there is none."""


def in_order(flows: Iterable[Flow]) -> tuple[Flow, ...]:
    """The flows, each after those that it reads. Raises ValueError if they read each other."""
    pending = {flow.global_id: flow for flow in flows}
    done: dict[GlobalId, Flow] = {}
    while pending:
        ready = [f for f in pending.values() if not any(i in pending for i in f.inputs)]
        if not ready:
            raise ValueError(f"a cycle of views: {', '.join(sorted(pending))}")
        for flow in ready:
            done[flow.global_id] = pending.pop(flow.global_id)
    return tuple(done.values())


def plan_round(
    flows: Sequence[Flow],
    uppers: Mapping[GlobalId, Timestamp],
    troubles: Mapping[GlobalId, Trouble],
    has_data: HasData,
    next_change: NextChange,
    now_ms: int,
) -> Round:
    """What to do now. `flows` are in order, `uppers` has those of the flows and of all inputs."""
    reached = dict(uppers)
    advances: dict[GlobalId, Timestamp] = {}
    ticks: list[Tick] = []
    for flow in flows:
        lower = reached[flow.global_id]
        upper = min((reached[i] for i in flow.inputs), default=TIMESTAMP_MAX)
        first = lower <= flow.as_of
        if upper <= (flow.as_of if first else lower):
            continue
        if not first and not has_data(flow.global_id, lower, upper):
            advances[flow.global_id] = reached[flow.global_id] = upper
            continue
        tick = Tick(flow.global_id, flow.as_of if first else lower, upper, first)
        planned = _after_trouble(tick, troubles.get(flow.global_id), has_data, next_change, now_ms)
        match planned:
            case Tick():
                ticks.append(planned)
            case int():
                advances[flow.global_id] = reached[flow.global_id] = Timestamp(planned)
            case None:
                pass
    return Round(advances, tuple(ticks))


def _after_trouble(
    tick: Tick,
    trouble: Trouble | None,
    has_data: HasData,
    next_change: NextChange,
    now_ms: int,
) -> Tick | Timestamp | None:
    """The tick to run instead, or the time to advance to, or None: nothing now."""
    if trouble is None or tick.lower >= trouble.upper:
        return tick
    if trouble.retry_at_ms is not None:
        return tick if now_ms >= trouble.retry_at_ms else None
    if not trouble.single:
        if tick.first:
            return replace(tick, upper=Timestamp(tick.lower + 1))
        change = next_change(tick.global_id, tick.lower, trouble.upper)
        if change > tick.lower:
            return change
        return replace(tick, upper=Timestamp(tick.lower + 1))
    if tick.upper <= trouble.upper or not has_data(tick.global_id, trouble.upper, tick.upper):
        return None
    if tick.first:
        return replace(tick, lower=Timestamp(tick.upper - 1))
    return replace(tick, collapse=True)


def after_data_error(tick: Tick, error: SlackwaterError) -> Trouble:
    """A row made the query fail: go on in smallest steps up to its time, then wait for a change."""
    single = tick.collapse or tick.upper <= tick.lower + 1
    return Trouble(error, tick.lower, tick.upper, single, 1, None)


def after_failure(
    tick: Tick, error: SlackwaterError, earlier: Trouble | None, now_ms: int
) -> Trouble:
    """Something else failed that may pass: try again later, each time after a longer pause."""
    attempts = 1 if earlier is None else earlier.attempts + 1
    pause = min(LONGEST_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** min(attempts - 1, 20))
    return Trouble(error, tick.lower, tick.upper, False, attempts, now_ms + pause)


def next_retry_ms(troubles: Iterable[Trouble]) -> int | None:
    """When the earliest of the dataflows that failed is tried again; None: at no given time."""
    return min((t.retry_at_ms for t in troubles if t.retry_at_ms is not None), default=None)


def capped_upper(
    parts: Sequence[Part],
    lower: Timestamp,
    upper: Timestamp,
    max_rows: int,
    max_parts: int,
) -> Timestamp:
    """The greatest upper of a tick from `lower` that reads about so much, or one part."""
    rows = 0
    for count, part in enumerate(sorted(parts, key=lambda p: p.max_time), start=1):
        rows += part.rows
        if rows > max_rows or count > max_parts:
            return Timestamp(min(upper, max(lower, part.max_time) + 1))
    return upper
