"""The commands that a replica must have seen, kept short.

Source: spec controllers 2.7, I37 to I39.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from slackwater.controller.protocol import (
    AllowCompaction,
    Hello,
    InitializationComplete,
    UpdateConfiguration,
)
from slackwater.repr.frontier import Frontier
from slackwater.repr.ids import GlobalId
from slackwater.storage.controller.protocol import Command, RunIngestion, RunSink


@dataclass(slots=True)
class ReplicaState:
    """The state of a replica after the commands that it was told.

    `sinces` are of the collections of its ingestions. The compaction of a sink does not change
    where the sink began, so nothing of it stays.
    """

    hello: Hello | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    ingestions: dict[GlobalId, RunIngestion] = field(default_factory=dict)
    sinks: dict[GlobalId, RunSink] = field(default_factory=dict)
    sinces: dict[GlobalId, Frontier] = field(default_factory=dict)
    initialized: bool = False

    def apply(self, command: Command) -> None:
        """Takes the command, as a replica that is told it."""
        match command:
            case Hello():
                self.hello = command
            case UpdateConfiguration(parameters):
                self.parameters.update(parameters)
            case InitializationComplete():
                self.initialized = True
            case RunIngestion(global_id):
                self.ingestions[global_id] = command
                self._forget_sinces()
            case RunSink(global_id):
                self.sinks[global_id] = command
            case AllowCompaction(global_id, since):
                self._compact(global_id, since)

    def _compact(self, global_id: GlobalId, since: Frontier) -> None:
        if global_id in self.sinks:
            if since.is_empty:
                del self.sinks[global_id]
        elif global_id in self.ingestions and since.is_empty:
            del self.ingestions[global_id]
            self._forget_sinces()
        elif global_id in self._collections():
            self.sinces[global_id] = since

    def _collections(self) -> set[GlobalId]:
        return {each for run in self.ingestions.values() for each in run.collections}

    def _forget_sinces(self) -> None:
        kept = self._collections()
        for global_id in [each for each in self.sinces if each not in kept]:
            del self.sinces[global_id]

    def commands(self) -> tuple[Command, ...]:
        """The shortest commands that bring a new replica to this state."""
        found: list[Command] = []
        if self.hello is not None:
            found.append(self.hello)
        if self.parameters:
            found.append(UpdateConfiguration(tuple(sorted(self.parameters.items()))))
        found += [self.ingestions[each] for each in sorted(self.ingestions)]
        found += [self.sinks[each] for each in sorted(self.sinks)]
        found += [AllowCompaction(each, self.sinces[each]) for each in sorted(self.sinces)]
        if self.initialized:
            found.append(InitializationComplete())
        return tuple(found)


def replayed(commands: Iterable[Command]) -> ReplicaState:
    """The state of a replica that was told exactly these."""
    state = ReplicaState()
    for command in commands:
        state.apply(command)
    return state


def reduce(commands: Iterable[Command]) -> tuple[Command, ...]:
    """Fewer commands with the same result: the last word on each object."""
    return replayed(commands).commands()


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The actions of a replica that was running when a new controller connects."""

    keep: tuple[GlobalId, ...]
    start: tuple[RunIngestion | RunSink, ...]
    stop: tuple[GlobalId, ...]
    state: ReplicaState


def reconcile(old: ReplicaState, commands: Iterable[Command]) -> Reconciled:
    """Compares what runs with what the new controller wants, at its `InitializationComplete`.

    An object with an equal description goes on, and a sink does so wherever it is by now: only
    its description counts, not where it would begin. The rest is stopped and started. The state is
    that of a fresh start with `commands` (I39).
    """
    state = replayed(commands)
    keep: list[GlobalId] = []
    start: list[RunIngestion | RunSink] = []
    for global_id, ingestion in sorted(state.ingestions.items()):
        if old.ingestions.get(global_id) == ingestion:
            keep.append(global_id)
        else:
            start.append(ingestion)
    for global_id, sink in sorted(state.sinks.items()):
        before = old.sinks.get(global_id)
        if before is not None and replace(before, as_of=sink.as_of) == sink:
            keep.append(global_id)
        else:
            start.append(sink)
    running = sorted({*old.ingestions, *old.sinks} - set(keep))
    return Reconciled(tuple(keep), tuple(start), tuple(running), state)
