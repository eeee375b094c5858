"""A replica as a value: what has happened goes in, what is to be done comes out.

It knows no clock, no thread, no shard and no engine. A shell calls its methods one at a time and
carries out, in order, the effects that they return; `slackwater.compute.worker` is one.

Not guaranteed: that a dataflow moves. Several replicas may maintain the same dataflow, and who is
slower finds its interval recorded. Frontiers are not kept here: each round is planned from those
that the shell has just read, so that nothing has to be told what other replicas did.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from slackwater.compute import schedule
from slackwater.compute.dataflow import Dataflow
from slackwater.compute.schedule import Failure, Round, Tick
from slackwater.controller.protocol import FrontierUppers
from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.ids import GlobalId

BACKGROUND_HYDRATIONS = 2
"""So many dataflows at most are hydrated at the same time, which bounds the memory it takes."""

BACKGROUND_TICKS = 2
"""So many ticks that may take long are made at the same time; quick ones do not wait for them."""

COMMITTED_TOGETHER = 64
"""Of so many quick ticks at most the updates wait for a common commit."""


class WorkKind(Enum):
    """The way in which a computation is run. There is a limit for each."""

    QUICK_TICK = "quick tick"
    """It is run by the thread that plans rounds, and ends when others would wait for it.

    What several have computed is committed together."""
    TICK = "tick"
    """It may take long, and is run in a thread of its own."""
    HYDRATION = "hydration"
    """It reads whole inputs, with or without a tick, and is run in a thread of its own."""


LIMITS: Mapping[WorkKind, int] = {
    WorkKind.QUICK_TICK: COMMITTED_TOGETHER,
    WorkKind.TICK: BACKGROUND_TICKS,
    WorkKind.HYDRATION: BACKGROUND_HYDRATIONS,
}
"""So many computations of each kind run at the same time."""


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """A computation for a dataflow that was begun. `tick` is None: it only makes ready for one.

    Two works are the same only if they are one object.
    """

    flow: Dataflow
    tick: Tick | None
    kind: WorkKind
    began_ms: int


@dataclass(frozen=True, slots=True)
class Agenda:
    """The dataflows that a round is planned for, each after those that it reads."""

    flows: Mapping[GlobalId, Dataflow]
    failures: Mapping[GlobalId, Failure]


@dataclass(frozen=True, slots=True)
class Committed:
    """The work's updates are durable up to `upper`.

    `out_of_memory`: why its program keeps nothing of what it looks up.
    """

    upper: Timestamp
    out_of_memory: SlackwaterError | None = None


@dataclass(frozen=True, slots=True)
class Nothing:
    """The work has recorded nothing: another replica was first, or nobody wants it any more.

    `look_again`: the next round may find that the dataflow moved.
    """

    look_again: bool = True


@dataclass(frozen=True, slots=True)
class Slow:
    """A quick tick has ended, since others would have waited for it: it is made in background."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The work could not be done, for a reason that may pass."""

    error: SlackwaterError


Result = Committed | Nothing | Slow | Failed


@dataclass(frozen=True, slots=True)
class CancelWork:
    """Nobody wants any more what the work computes."""

    work: Work


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """A program keeps nothing of what it looks up, because of `error`, since `began_ms`."""

    error: SlackwaterError
    began_ms: int


@dataclass(frozen=True, slots=True)
class ReportTrouble:
    """The dataflow does not go on, or keeps nothing: why; or it does again, where both are None.

    What was reported of it before is over. Times are of the clock that the replica is told.
    """

    id: GlobalId
    failure: Failure | None
    out_of_memory: OutOfMemory | None


@dataclass(frozen=True, slots=True)
class ReportEnd:
    """The replica has ended, because of `error`."""

    error: BaseException


Effect = CancelWork | FrontierUppers | ReportTrouble | ReportEnd


@dataclass(slots=True)
class Replica:
    """The dataflows of one replica, what is computed for them, and what does not go on.

    For every dataflow at most one computation runs at any time. The intervals of its ticks that
    are committed follow on one another, if the shell commits each append only where the output's
    upper is the tick's lower.
    """

    failed: BaseException | None = field(default=None, init=False)
    """The error that ended the replica."""
    _flows: dict[GlobalId, Dataflow] = field(default_factory=dict, init=False)
    _failures: dict[GlobalId, Failure] = field(default_factory=dict, init=False)
    _out_of_memory: dict[GlobalId, OutOfMemory] = field(default_factory=dict, init=False)
    _read_only: set[GlobalId] = field(default_factory=set, init=False)
    """Dataflows whose output may not be written yet: they are made ready for it."""
    _works: dict[GlobalId, Work] = field(default_factory=dict, init=False)
    _queue: deque[Tick] = field(default_factory=deque, init=False)
    """The ticks of the round that are not begun."""
    _crowded_out: set[GlobalId] = field(default_factory=set, init=False)
    """Dataflows for which there was no room in this round; the end of other work makes room."""
    _is_awake: bool = field(default=False, init=False)
    _is_stopping: bool = field(default=False, init=False)

    # Dataflows

    @property
    def flows(self) -> dict[GlobalId, Dataflow]:
        """The dataflows of this moment."""
        return dict(self._flows)

    def add(self, flow: Dataflow, *, read_only: bool = False) -> None:
        """Maintains the dataflow from now on. Its id is new, or that of one that was removed.

        `read_only`: only after `allow_writes` ticks are made for it.
        """
        if flow.global_id in self._flows:
            raise FatalError(f"there is a dataflow {flow.global_id} already")
        self._flows[flow.global_id] = flow
        if read_only:
            self._read_only.add(flow.global_id)
        self.wake()

    def allow_writes(self, global_id: GlobalId) -> None:
        """From now on the output of the dataflow may be written. Idempotent."""
        self._read_only.discard(global_id)
        self.wake()

    def remove(self, global_id: GlobalId) -> tuple[Effect, ...]:
        """Forgets the dataflow. Idempotent."""
        self._failures.pop(global_id, None)
        self._out_of_memory.pop(global_id, None)
        self._read_only.discard(global_id)
        self._forget_queued(global_id)
        self._flows.pop(global_id, None)
        self.wake()
        work = self._works.get(global_id)
        return () if work is None else (CancelWork(work),)

    # Rounds

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    def wake(self) -> None:
        """Something may have to be done that the last round did not see."""
        self._is_awake = True

    def stop(self) -> None:
        """Begins nothing any more. What was begun goes on."""
        self._is_stopping = True
        self._queue.clear()

    def fail(self, error: BaseException) -> tuple[Effect, ...]:
        """Ends the replica, because of a `FatalError`, another leader, or a fault of ours."""
        self.stop()
        if self.failed is not None:
            return ()
        self.failed = error
        return (ReportEnd(error),)

    def pause_ms(self, now_ms: int) -> int | None:
        """For how long there is nothing to do; 0: there may be something; None: until `wake`."""
        if self._is_awake or self._is_stopping:
            return 0
        retry_ms = schedule.next_retry_ms(
            failure
            for global_id, failure in self._failures.items()
            if global_id not in self._works and global_id not in self._crowded_out
        )
        return None if retry_ms is None else max(0, retry_ms - now_ms)

    def begin_round(self) -> bool:
        """Begins to look for what is to be done; False: the replica is stopping."""
        self._is_awake = False
        self._queue.clear()
        self._crowded_out.clear()
        return not self._is_stopping

    def agenda(self, readers_of: GlobalId | None = None) -> Agenda:
        """The dataflows that ticks may be planned for: those that nobody works for.

        `readers_of`: those of them that read this one, and have no tick in the round yet.
        """
        waiting = frozenset(tick.global_id for tick in self._queue)
        chosen = {
            g: flow
            for g, flow in self._flows.items()
            if g not in self._works
            and g not in self._read_only
            and not self._waits(flow)
            and (readers_of is None or (readers_of in flow.inputs and g not in waiting))
        }
        return Agenda(chosen, {g: f for g, f in self._failures.items() if g in chosen})

    def planned(self, agenda: Agenda, found: Round) -> tuple[Effect, ...]:
        """Queues the ticks of a round that was planned for the agenda.

        They come before those that were queued: a chain of views shows a change soonest so. The
        ticks of dataflows that were removed or replaced meanwhile are left out. A dataflow without
        a tick to make does not fail any more: another replica has made it, say.
        """
        tried = {tick.global_id for tick in found.ticks} | found.waiting
        over = [
            global_id
            for global_id, failure in agenda.failures.items()
            if global_id not in tried and self._failures.get(global_id) is failure
        ]
        for global_id in over:
            del self._failures[global_id]
        effects = tuple(self._trouble(global_id) for global_id in over)
        if self._is_stopping:
            return effects
        flows = self._flows
        ticks = [t for t in found.ticks if flows.get(t.global_id) is agenda.flows[t.global_id]]
        self._queue.extendleft(reversed(ticks))
        return effects

    def next_tick(self) -> tuple[Dataflow, Tick] | None:
        """The next tick of the round, with its dataflow; None: the round is over."""
        if not self._queue:
            return None
        tick = self._queue.popleft()
        return self._flows[tick.global_id], tick

    def advanced(self, uppers: Mapping[GlobalId, Timestamp]) -> tuple[Effect, ...]:
        """These dataflows have no updates before their new uppers, which are durable."""
        return (_frontiers(uppers),) if uppers else ()

    def interrupted(self, error: SlackwaterError, now_ms: int) -> tuple[Effect, ...]:
        """A round could not be planned or carried out: all dataflows are tried again later."""
        for global_id in self._flows:
            earlier = self._failures.get(global_id)
            self._failures[global_id] = schedule.after_failure(error, earlier, now_ms)
        return tuple(self._trouble(global_id) for global_id in self._flows)

    # Work

    def begin(self, flow: Dataflow, tick: Tick | None, kind: WorkKind, now_ms: int) -> Work | None:
        """Begins a tick, or without one a hydration ahead of it.

        None: the dataflow was removed, or so many computations of the kind are running already;
        the end of one of them is a reason to look again.
        """
        if self._is_stopping or self._flows.get(flow.global_id) is not flow:
            return None
        running = sum(work.kind is kind for work in self._works.values())
        if flow.global_id in self._works:
            return None
        if running >= LIMITS[kind]:
            self._crowded_out.add(flow.global_id)
            return None
        work = Work(flow, tick, kind, now_ms)
        self._works[flow.global_id] = work
        return work

    def may_hydrate_ahead(self) -> dict[GlobalId, Dataflow]:
        """The dataflows that nobody works for, and that go on."""
        busy = {*self._works, *self._failures}
        return {
            g: flow for g, flow in self._flows.items() if g not in busy and not self._waits(flow)
        }

    def is_wanted(self, work: Work) -> bool:
        """Whether what the work has computed may still be committed."""
        return not self._is_stopping and self._flows.get(work.flow.global_id) is work.flow

    def finish(self, work: Work, result: Result, now_ms: int) -> tuple[Effect, ...]:
        """The work has this result. Nothing is said of a dataflow that was removed meanwhile.

        Until `end` nothing else is begun for the dataflow, so that its effects keep their order.
        """
        global_id = work.flow.global_id
        if self._flows.get(global_id) is not work.flow:
            return ()
        match result:
            case Committed(upper, error):
                failed = self._failures.pop(global_id, None) is not None
                news = self._note_memory(global_id, error, now_ms) or failed
                told = (self._trouble(global_id),) if news else ()
                return (*told, _frontiers({global_id: upper}))
            case Failed(error):
                earlier = self._failures.get(global_id)
                self._failures[global_id] = schedule.after_failure(error, earlier, now_ms)
                return (self._trouble(global_id),)
            case _:
                return ()

    def end(self, work: Work) -> None:
        """The work is over, with or without a result; its thread needs nothing any more."""
        del self._works[work.flow.global_id]
        if work.kind is not WorkKind.QUICK_TICK:
            self.wake()

    # What does not go on

    @property
    def failures(self) -> dict[GlobalId, Failure]:
        """The dataflows that do not go on at the moment."""
        return dict(self._failures)

    @property
    def out_of_memory(self) -> dict[GlobalId, OutOfMemory]:
        """The dataflows whose programs keep nothing at the moment."""
        return dict(self._out_of_memory)

    def works(self) -> tuple[Work, ...]:
        """The computations of the moment."""
        return tuple(self._works.values())

    def validate(self) -> None:
        """Raises `FatalError` when what it holds contradicts itself."""
        for kind, limit in LIMITS.items():
            running = sum(work.kind is kind for work in self._works.values())
            if running > limit:
                raise FatalError(f"{running} computations run as {kind.value}, not {limit}")
        known: tuple[tuple[str, Collection[GlobalId]], ...] = (
            ("failure", self._failures),
            ("lack of memory", self._out_of_memory),
            ("ban on writes", self._read_only),
        )
        for name, ids in known:
            unknown = sorted(set(ids) - self._flows.keys())
            if unknown:
                raise FatalError(f"a {name} is known of {', '.join(unknown)}, without a dataflow")
        queued = [tick.global_id for tick in self._queue]
        if len(set(queued)) < len(queued) or not self._flows.keys() >= set(queued):
            raise FatalError(f"the queue has ticks twice or without a dataflow: {queued}")
        if self._is_stopping and queued:
            raise FatalError(f"a replica that is stopping has queued {queued}")

    def _waits(self, flow: Dataflow) -> bool:
        """Whether the dataflow takes over what another one still uses."""
        return flow.takes_over in self._flows or flow.takes_over in self._works

    def _forget_queued(self, global_id: GlobalId) -> None:
        self._queue = deque(tick for tick in self._queue if tick.global_id != global_id)

    def _note_memory(self, global_id: GlobalId, error: SlackwaterError | None, now_ms: int) -> bool:
        """Whether that is news."""
        if error is None:
            return self._out_of_memory.pop(global_id, None) is not None
        if global_id in self._out_of_memory:
            return False
        self._out_of_memory[global_id] = OutOfMemory(error, now_ms)
        return True

    def _trouble(self, global_id: GlobalId) -> ReportTrouble:
        return ReportTrouble(
            global_id, self._failures.get(global_id), self._out_of_memory.get(global_id)
        )


def _frontiers(uppers: Mapping[GlobalId, Timestamp]) -> FrontierUppers:
    return FrontierUppers(tuple((g, Frontier(upper)) for g, upper in uppers.items()))
