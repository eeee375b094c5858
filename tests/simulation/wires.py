"""Replicas at the other end of a wire, on which everything is bytes.

A wire ends at any moment: commands and responses that are under way are lost, and the leader hears
of it a while later. The replica goes on alone, or ends as well. When the leader connects again, a
replica that has gone on keeps what is still wanted, as `reconcile` says, and drops the rest.
Responses may come twice. The replica is the one of the leader's process, whose shards it reads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.simulation.faults import Hazards
from tests.simulation.threads import Ended, Process

from slackwater.adapter import assembly
from slackwater.compute.controller import protocol as pr
from slackwater.compute.controller.encoding import (
    decode_command,
    decode_response,
    encode_command,
    encode_response,
)
from slackwater.compute.controller.history import ReplicaState
from slackwater.compute.controller.reconciliation import reconcile
from slackwater.compute.controller.shell import ConnectionLost, Respond
from slackwater.compute.local_replica import LocalReplica, ReplicaOptions, ReplicaParts
from slackwater.controller.protocol import AllowCompaction, InitializationComplete
from slackwater.persist.leadership import Fenced
from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier

UNHEARD_S = 3.0
"""For so long at most nobody knows that a wire has ended."""
MAY_BE_LATE = (pr.FrontierReport, pr.Computed, pr.Heartbeat)
"""What says the same however late it comes."""


def is_end(response: pr.ReplicaResponse) -> bool:
    """Whether the replica says that an export is over."""
    return isinstance(response, pr.FrontierReport) and response.write == EMPTY_FRONTIER


@dataclass(eq=False, slots=True)
class Remote:
    """A replica that outlives its wires. `state` is what it was told, over all of them."""

    hazards: Hazards
    process: Process
    wire: Wire | None = None
    state: ReplicaState = field(default_factory=ReplicaState)
    local: LocalReplica | None = None
    _buffer: list[pr.Command] = field(default_factory=list)
    _is_ready: bool = False
    _last: dict[tuple[str, type], pr.ReplicaResponse] = field(default_factory=dict)
    """What it has said last of each export, which has to be said over the next wire as well."""
    _scheduled: set[str] = field(default_factory=set)
    _begins: dict[str, Frontier] = field(default_factory=dict)
    """Where the exports begin, for whoever is at the other end of the present wire."""

    def begin(self, parts: ReplicaParts, options: ReplicaOptions) -> None:
        """Begins to work, in threads of its own process."""
        self.local = LocalReplica(parts, self.says, options)
        self.local.start()

    def attach(self, wire: Wire) -> None:
        """All that was said and not heard is lost."""
        self.wire, self._buffer, self._is_ready = wire, [], False

    def says(self, responses: Sequence[pr.ReplicaResponse]) -> None:
        """Called in its own threads, which end here when it has ended."""
        self.hazards.boundary("response")
        for each in responses:
            if is_end(each):
                self._last = {key: said for key, said in self._last.items() if key[0] != each.id}
                self._begins.pop(each.id, None)
            elif isinstance(each, pr.FrontierReport | pr.DataflowStatus | pr.IndexOpened):
                self._last[each.id, type(each)] = each
        if self.wire is not None and self._is_ready:
            told = [encode_response(each) for each in responses if self._is_new(each)]
            self.wire.brings(told)

    def _is_new(self, response: pr.ReplicaResponse) -> bool:
        """Whether it does not say that an export is before its beginning."""
        if not isinstance(response, pr.FrontierReport) or response.write is None:
            return True
        return self._begins.get(response.id, response.write) <= response.write

    def takes(self, command: pr.Command) -> None:
        """Takes the next command of the present wire."""
        if self._is_ready:
            self.state.apply(command)
            self._tell(command)
            return
        self._buffer.append(command)
        if isinstance(command, InitializationComplete):
            self._compare()

    def _compare(self) -> None:
        """Keeps what is wanted. What it begins anew, or was not told yet, it is told now."""
        before, told = self.state, self._buffer
        found = reconcile(before, told)
        self.state, self._buffer = found.state, []
        kept = {each.id for each in found.keep}
        created = [i for each in before.dataflows() for i in each.export_ids]
        stopped = [i for i in reversed(created) if i in found.stop]
        self._last = {key: each for key, each in self._last.items() if key[0] in kept}
        for each in stopped:
            # Nobody at the other end knows them: what it says of them is not sent.
            self._tell(AllowCompaction(each, EMPTY_FRONTIER))
        self._begins = dict(self.state.sinces)
        self._is_ready = True
        again = [encode_response(each) for each in self._last.values() if self._is_new(each)]
        if self.wire is not None:
            self.wire.brings(again)
        for allowed in found.keep:
            self.local.send(allowed)
        for command in told:
            match command:
                case pr.CreateDataflow(dataflow) if kept.issuperset(dataflow.export_ids):
                    continue
                case pr.CreateDataflow(dataflow) if not self._wants(dataflow.export_ids):
                    continue
                case pr.AllowWrites(i) if i in kept and i in before.writing:
                    continue
                case pr.Schedule(i) | pr.AllowWrites(i) | pr.OutputAdvanced(i, _) if (
                    i not in self.state.export_ids
                ):
                    continue
                case AllowCompaction():
                    # `keep` says it of what goes on; what begins now begins there.
                    continue
            self._tell(command)

    def _tell(self, command: pr.Command) -> None:
        """Tells the replica itself, which is scheduled what goes on only once.

        Over a new wire that may come long after what was to be kept: few are to hydrate at once.
        """
        match command:
            case AllowCompaction(i, since) if since.is_empty:
                self._scheduled.discard(i)
            case pr.Schedule(i) if i in self._scheduled:
                return
            case pr.Schedule(i):
                self._scheduled.add(i)
        self.local.send(command)

    def _wants(self, exports: Sequence[str]) -> bool:
        return self.state.export_ids.issuperset(exports)


@dataclass(eq=False, slots=True)
class Wire:
    """A connection, in the place of `LocalReplica`. `remotes` are the replicas of the process."""

    hazards: Hazards
    remotes: dict[str, Remote]
    parts: ReplicaParts
    respond: Respond
    options: ReplicaOptions
    remote: Remote | None = None
    is_cut: bool = False
    _there: deque[bytes | None] = field(default_factory=deque)
    _back: deque[list[bytes]] = field(default_factory=deque)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _commands: int = 0

    # What the leader does

    def start(self) -> None:
        scheduler, name = self.hazards.scheduler, self.options.name
        leader = scheduler.process
        remote = self.remotes.get(name)
        if remote is None or not remote.process.alive:
            slow = scheduler.rng.uniform(1, 6) if self.hazards.strikes("slow") else 0.0
            process = Process(f"{leader.name}/{name}", host=leader, pause_s=slow)
            remote = self.remotes[name] = Remote(self.hazards, process)
        elif remote.local is not None:
            scheduler.note(f"{name} is found again")
        self.remote = remote
        remote.attach(self)
        scheduler.spawn("commands", remote.process, self._carry_commands)
        scheduler.spawn("responses", leader, self._carry_responses)

    def send(self, command: pr.Command) -> None:
        self._put(self._there, encode_command(command))

    def wake(self) -> None:
        self._put(self._there, None)

    def close(self) -> None:
        """The leader ends, and the replicas of its process with it."""
        if self.remote.local is not None:
            self.remote.local.close()

    def join(self) -> None:
        if self.remote.local is not None and self.remote.process.alive:
            self.remote.local.join()
        self._cut()

    def drop(self) -> None:
        """A wire that was lost is only forgotten; else the replica is not wanted any more."""
        if self.is_cut:
            return
        self._cut()
        self.remotes.pop(self.options.name, None)
        if self.remote.local is not None:
            self.remote.local.drop()

    # What the replica does

    def brings(self, responses: list[bytes]) -> None:
        self._put(self._back, responses)

    # The wire itself

    def _put(self, end: deque, item: object) -> None:
        with self._changed:
            if not self.is_cut:
                end.append(item)
                self._changed.notify_all()

    def _next(self, end: deque) -> object:
        """The next of what is under way. Raises Ended when there will be none."""
        with self._changed:
            while not end:
                if self.is_cut:
                    raise Ended
                self._changed.wait()
            return end.popleft()

    def _carry_commands(self) -> None:
        """In the replica's process."""
        try:
            if self.remote.local is None:
                self.remote.begin(self.parts, self.options)
            while True:
                command = self._next(self._there)
                self.hazards.boundary("command")
                if self.is_cut:
                    return
                if self.hazards.strikes("cut"):
                    self._lose()
                elif command is None:
                    self.remote.local.wake()
                else:
                    self.remote.takes(decode_command(command))
        finally:
            if not self.remote.process.alive:
                self._lose()

    def _carry_responses(self) -> None:
        """In the leader's process."""
        while True:
            said = self._next(self._back)
            self.hazards.boundary("responses")
            if self.is_cut:
                return
            if self.hazards.strikes("cut") or not self.remote.process.alive:
                self._lose()
                continue
            self._hear(said)
            if self.hazards.strikes("repeat"):
                # An end is said once: nothing follows it (I47), also not the same again.
                again = [each for each in said if not is_end(decode_response(each))]
                self._hear(again)
                late = [e for e in again if isinstance(decode_response(e), MAY_BE_LATE)]
                self._later(lambda late=late: self.is_cut or self._hear(late))

    def _hear(self, said: Sequence[bytes | ConnectionLost]) -> None:
        lost = [each for each in said if isinstance(each, ConnectionLost)]
        try:
            self.respond(lost or [decode_response(each) for each in said])
        except SlackwaterError as error:
            self.hazards.scheduler.note(f"an output was not committed: {error}")
        except (FatalError, Fenced) as error:
            self.parts.on_end(error)

    def _later(self, action: Callable[[], object]) -> None:
        scheduler = self.hazards.scheduler

        def run() -> None:
            scheduler.sleep(scheduler.rng.uniform(0, UNHEARD_S))
            action()

        scheduler.spawn("late", self.remote.process.host, run)

    def _cut(self) -> None:
        self.is_cut = True
        self._there.clear()
        self._back.clear()
        self.remote.wire = None if self.remote.wire is self else self.remote.wire
        with self._changed:
            self._changed.notify_all()

    def _lose(self) -> None:
        """The wire ends, and with a replica that has ended all that waits in it."""
        if self.is_cut:
            return
        alive = self.remote.process.alive
        self.hazards.scheduler.note(f"{self.options.name} is cut off{'' if alive else ', dead'}")
        self._cut()
        if not alive and self.remote.local is not None:
            self._later(self.remote.local.close)
        self._later(lambda: self._hear([ConnectionLost()]))


@dataclass(eq=False, slots=True)
class Wires:
    """Makes the connections of all leaders; each has replicas of its own."""

    hazards: Hazards
    _remotes: dict[Process, dict[str, Remote]] = field(default_factory=dict)

    def connect(self, parts: ReplicaParts, respond: Respond, options: ReplicaOptions):
        remotes = self._remotes.setdefault(self.hazards.scheduler.process, {})
        if options.name not in remotes and not self.hazards.strikes("wire"):
            return LocalReplica(parts, respond, options)
        return Wire(self.hazards, remotes, parts, respond, options)


@contextmanager
def wired(hazards: Hazards) -> Iterator[None]:
    """Puts replicas at the other ends of wires, where the weather has it."""
    assembly.LocalReplica = Wires(hazards).connect  # type: ignore[assignment, misc]
    yield
    assembly.LocalReplica = LocalReplica  # type: ignore[misc]
