"""Hydration: a few dataflows at a time, and which of them are done.

Source: spec controllers 4.11, I48.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from slackwater.compute.controller.protocol import Command, CreateDataflow, Schedule
from slackwater.controller.protocol import AllowCompaction
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Frontier
from slackwater.repr.ids import GlobalId, is_transient

CONCURRENCY_PARAMETER = "compute_hydration_concurrency"
"""The parameter that says how many dataflows may hydrate at once on a replica."""

DEFAULT_CONCURRENCY = 4


def is_hydrated(as_of: Frontier, output: Frontier) -> bool:
    """True if what is computed up to `output` has the contents at the as-of."""
    return as_of.is_empty or as_of < output


class Phase(Enum):
    """The progress of an export's hydration."""

    CREATED = "created"
    QUEUED = "queued"
    HYDRATING = "hydrating"
    HYDRATED = "hydrated"


@dataclass(slots=True)
class _Tracked:
    as_of: Frontier
    phase: Phase
    is_stalled: bool = False


class SequentialHydration:
    """Holds back `Schedule` commands on their way to one replica. Not thread-safe.

    At most `limit` of the exports that are not transient hydrate at once, and each `Schedule` is
    forwarded at most once (I48); if hydrated exports are reported, each is forwarded in the end.
    One that is stalled does not count: it may not go on before another does. A dataflow is expected
    to have one export; each of several counts. A limit that is lowered ends no hydration that has
    begun.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tracked: dict[GlobalId, _Tracked] = {}
        self._queue: deque[GlobalId] = deque()
        self._hydrating: set[GlobalId] = set()
        self._begun_under = limit

    @property
    def limit(self) -> int:
        """The number of dataflows that may hydrate at once."""
        return self._limit

    def phase(self, global_id: GlobalId) -> Phase:
        """The phase of an export that is not hydrated. A transient one hydrates at once."""
        tracked = self._tracked.get(global_id)
        return Phase.HYDRATING if tracked is None else tracked.phase

    def command(self, command: Command) -> Iterator[Command]:
        """The commands that are sent now in place of this one."""
        match command:
            case CreateDataflow(dataflow) if dataflow.as_of is not None:
                for each in dataflow.export_ids:
                    if not is_transient(each):
                        self._tracked[each] = _Tracked(dataflow.as_of, Phase.CREATED)
                yield command
            case Schedule(global_id) if global_id in self._tracked:
                self._tracked[global_id].phase = Phase.QUEUED
                self._queue.append(global_id)
                yield from self._fill()
            case AllowCompaction(global_id, since) if since.is_empty:
                yield command
                self._forget(global_id)
                yield from self._fill()
            case _:
                yield command

    def computed(self, global_id: GlobalId, output: Frontier) -> Iterator[Command]:
        """The replica has computed the export up to `output`; what is sent now."""
        tracked = self._tracked.get(global_id)
        if tracked is None or not is_hydrated(tracked.as_of, output):
            return
        self._forget(global_id)
        if tracked.phase is Phase.QUEUED:
            yield Schedule(global_id)
        yield from self._fill()

    def stalled(self, global_id: GlobalId) -> Iterator[Command]:
        """The export does not go on: another takes its place; what is sent now."""
        if global_id in self._hydrating:
            self._hydrating.discard(global_id)
            self._tracked[global_id].is_stalled = True
            yield from self._fill()

    def set_limit(self, limit: int) -> Iterator[Command]:
        """From now on so many may hydrate at once; what is sent now."""
        self._limit = limit
        self._begun_under = max(limit, len(self._hydrating))
        yield from self._fill()

    def _forget(self, global_id: GlobalId) -> None:
        self._tracked.pop(global_id, None)
        self._hydrating.discard(global_id)
        self._begun_under = max(self._limit, len(self._hydrating))

    def _fill(self) -> Iterator[Command]:
        while self._queue and len(self._hydrating) < self._limit:
            global_id = self._queue.popleft()
            tracked = self._tracked.get(global_id)
            if tracked is not None and tracked.phase is Phase.QUEUED:
                tracked.phase = Phase.HYDRATING
                self._hydrating.add(global_id)
                yield Schedule(global_id)

    def validate(self) -> None:
        """Raises FatalError unless I48 holds."""
        hydrating = {
            i
            for i, each in self._tracked.items()
            if each.phase is Phase.HYDRATING and not each.is_stalled
        }
        if hydrating != self._hydrating or len(hydrating) > self._begun_under:
            raise FatalError(f"{sorted(hydrating)} hydrate at once, and {self._limit} may")
        waiting = {i for i, each in self._tracked.items() if each.phase is Phase.QUEUED}
        if not waiting <= set(self._queue) or (waiting and len(hydrating) < self._limit):
            raise FatalError(f"{sorted(waiting)} are not hydrated although there is room")
