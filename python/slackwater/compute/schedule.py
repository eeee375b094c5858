"""The schedule: the dataflows that tick, over their intervals, or only advance. No I/O, no clock.

The frontiers are read anew for each round, so nothing here has to be told what others did: when
another replica was first, the next round begins where that one ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from slackwater.persist.parts import Part
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import TIMESTAMP_MAX, Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.refresh import RefreshSchedule

FIRST_BACKOFF_MS = 100
LONGEST_BACKOFF_MS = 30_000

STALLED_AFTER = 3
"""So many attempts fail one after the other before people are told that did not ask."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A dataflow as the schedule sees it. `inputs` may be other flows.

    One with a schedule, `refresh`, stays as it is until the next refresh. `present`: it does not
    go beyond this time, also where its inputs have.
    """

    global_id: GlobalId
    inputs: tuple[GlobalId, ...]
    as_of: Timestamp
    refresh: RefreshSchedule | None = None
    present: Timestamp = TIMESTAMP_MAX


@dataclass(frozen=True, slots=True)
class Tick:
    """Compute the updates of ``[lower, upper)``. `first`: nothing was recorded before."""

    global_id: GlobalId
    lower: Timestamp
    upper: Timestamp
    first: bool


@dataclass(frozen=True, slots=True)
class Round:
    """`advances` move uppers without data, in one transaction; then each of `ticks` runs.

    `waiting`: the dataflows that have a tick to make, and have failed so recently that it is not
    tried yet.
    """

    advances: Mapping[GlobalId, Timestamp]
    ticks: tuple[Tick, ...]
    waiting: frozenset[GlobalId] = frozenset()


@dataclass(frozen=True, slots=True)
class Failure:
    """A dataflow whose tick could not be made, for a reason that may pass. It is tried again.

    `began_ms` and `retry_at_ms` are times of the clock that `plan_round` is told.
    """

    error: SlackwaterError
    attempts: int
    began_ms: int
    retry_at_ms: int

    @property
    def is_stalled(self) -> bool:
        """Whether it lasts longer than what passes by itself."""
        return self.attempts >= STALLED_AFTER


HasData = Callable[[GlobalId, Timestamp, Timestamp], bool]
"""Whether the flow may change in the interval: an input of it does, or a row's time comes."""


def in_order(flows: Iterable[Flow]) -> tuple[Flow, ...]:
    """The flows, each after those that it reads. Raises ValueError if they read each other."""
    known = {flow.global_id: flow for flow in flows}
    reads = {g: [i for i in flow.inputs if i in known] for g, flow in known.items()}
    try:
        return tuple(known[g] for g in TopologicalSorter(reads).static_order())
    except CycleError as error:
        raise ValueError(f"a cycle of views: {', '.join(sorted(set(error.args[1])))}") from None


def plan_round(
    flows: Sequence[Flow],
    uppers: Mapping[GlobalId, Timestamp],
    failures: Mapping[GlobalId, Failure],
    has_data: HasData,
    now_ms: int,
) -> Round:
    """The next round. `flows` are in order, `uppers` has those of the flows and of all inputs."""
    reached = dict(uppers)
    advances: dict[GlobalId, Timestamp] = {}
    ticks: list[Tick] = []
    waiting: list[GlobalId] = []
    for flow in flows:
        lower = reached[flow.global_id]
        upper = min((reached[i] for i in flow.inputs), default=TIMESTAMP_MAX)
        upper = min(upper, flow.present)
        first = lower <= flow.as_of
        if upper <= (flow.as_of if first else lower):
            continue
        if not first and not has_data(flow.global_id, lower, upper):
            advances[flow.global_id] = reached[flow.global_id] = _jumped(flow, upper)
            continue
        failure = failures.get(flow.global_id)
        if failure is None or now_ms >= failure.retry_at_ms:
            ticks.append(Tick(flow.global_id, flow.as_of if first else lower, upper, first))
        else:
            waiting.append(flow.global_id)
    return Round(advances, tuple(ticks), frozenset(waiting))


def _jumped(flow: Flow, upper: Timestamp) -> Timestamp:
    """The upper of a flow that has computed what there is before `upper`."""
    if flow.refresh is None:
        return upper
    return Timestamp(flow.refresh.upper(Frontier(upper)).value)


def after_failure(error: SlackwaterError, earlier: Failure | None, now_ms: int) -> Failure:
    """Something failed that may pass: try again later, each time after a longer pause."""
    attempts, began_ms = (
        (1, now_ms) if earlier is None else (earlier.attempts + 1, earlier.began_ms)
    )
    pause = min(LONGEST_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** min(attempts - 1, 20))
    return Failure(error, attempts, began_ms, now_ms + pause)


def next_retry_ms(failures: Iterable[Failure]) -> int | None:
    """When the earliest of the dataflows that failed is tried again; None: none has failed."""
    return min((t.retry_at_ms for t in failures), default=None)


def capped_upper(
    parts: Sequence[Part],
    lower: Timestamp,
    upper: Timestamp,
    *,
    max_rows: int,
    max_bytes: int,
) -> Timestamp:
    """The greatest upper of a tick from `lower` that reads about so much, or one time's changes.

    `max_bytes` are those of the parts as they are stored.
    """
    rows = size_bytes = 0
    for part in sorted(parts, key=lambda p: p.max_time):
        rows += part.rows
        size_bytes += part.body.size_bytes
        if rows > max_rows or size_bytes > max_bytes:
            return Timestamp(min(upper, max(lower, part.max_time) + 1))
    return upper
