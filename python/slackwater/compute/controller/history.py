"""The commands that a replica must have seen, kept short.

Source: spec controllers 4.10, I37, I38.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from slackwater.compute.controller.descriptions import DataflowDescription
from slackwater.compute.controller.protocol import (
    AllowWrites,
    CancelPeek,
    Command,
    CreateDataflow,
    CreateInstance,
    OutputAdvanced,
    Peek,
    Schedule,
)
from slackwater.controller.protocol import (
    AllowCompaction,
    Hello,
    InitializationComplete,
    UpdateConfiguration,
)
from slackwater.repr.frontier import EMPTY_FRONTIER, MINIMUM_FRONTIER, Frontier
from slackwater.repr.ids import GlobalId


@dataclass(slots=True)
class ReplicaState:
    """The state of a replica after the commands that it was told: the objects installed on it.

    A dataflow all of whose exports were dropped is gone. `sinces` say how far exports and logs may
    be compacted.
    """

    hello: Hello | None = None
    instance: CreateInstance | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    sinces: dict[GlobalId, Frontier] = field(default_factory=dict)
    scheduled: set[GlobalId] = field(default_factory=set)
    outputs: dict[GlobalId, Frontier] = field(default_factory=dict)
    peeks: dict[str, Peek] = field(default_factory=dict)
    writing: set[GlobalId] = field(default_factory=set)
    initialized: bool = False
    _created: dict[GlobalId, DataflowDescription] = field(default_factory=dict)
    """By the first export, and without the as-of, which the sinces say."""
    _first: dict[GlobalId, GlobalId] = field(default_factory=dict)

    def apply(self, command: Command) -> None:
        """Takes the command, as a replica that is told it. What is about no object has no effect.

        The first definition of an export stays; a second one has no effect.
        """
        match command:
            case AllowCompaction(global_id, since):
                self._compact(global_id, since)
            case CreateDataflow(dataflow):
                self._create(dataflow)
            case Schedule(global_id):
                if global_id in self._first:
                    self.scheduled.add(global_id)
            case OutputAdvanced(global_id, upper):
                if global_id in self._first:
                    self.outputs[global_id] = max(upper, self.outputs.get(global_id, upper))
            case Peek(peek_id):
                self.peeks[peek_id] = command
            case CancelPeek(peek_id):
                self.peeks.pop(peek_id, None)
            case AllowWrites(global_id):
                if global_id in self._first:
                    self.writing.add(global_id)
            case UpdateConfiguration(parameters):
                self.parameters.update(parameters)
            case Hello():
                self.hello = command
            case CreateInstance():
                self.instance = command
                self.sinces |= dict.fromkeys(command.logs, MINIMUM_FRONTIER)
            case InitializationComplete():
                self.initialized = True

    @property
    def export_ids(self) -> set[GlobalId]:
        """The exports of all dataflows that are installed."""
        return set(self._first)

    def dataflows(self) -> list[DataflowDescription]:
        """The dataflows in the order in which they were created.

        Each has the earliest since of its exports as its as-of: replays refer only to times of
        inputs that can still be read.
        """
        return [each.at(self._as_of(each)) for each in self._created.values()]

    def commands(self) -> tuple[Command, ...]:
        """The shortest commands that bring a new replica to this state.

        Dataflows, and their schedules, come in the order in which they were created, so after those
        that they import. Peeks come before compaction, so that they find their times.
        """
        found: list[Command] = []
        if self.hello is not None:
            found.append(self.hello)
        if self.instance is not None:
            found.append(self.instance)
        if self.parameters:
            found.append(UpdateConfiguration(tuple(sorted(self.parameters.items()))))
        found += [CreateDataflow(each) for each in self.dataflows()]
        found += [Schedule(each) for each in self._first if each in self.scheduled]
        found += [OutputAdvanced(each, self.outputs[each]) for each in sorted(self.outputs)]
        found += self.peeks.values()
        found += [
            AllowCompaction(each, since)
            for each, since in sorted(self.sinces.items())
            if since != self._beginning(each)
        ]
        if self.initialized:
            found.append(InitializationComplete())
        found += [AllowWrites(each) for each in sorted(self.writing)]
        return tuple(found)

    def _beginning(self, global_id: GlobalId) -> Frontier:
        first = self._first.get(global_id)
        return MINIMUM_FRONTIER if first is None else self._as_of(self._created[first])

    def _as_of(self, dataflow: DataflowDescription) -> Frontier:
        return min(self.sinces[each] for each in dataflow.export_ids)

    def _create(self, dataflow: DataflowDescription) -> None:
        ids = dataflow.export_ids
        as_of = EMPTY_FRONTIER if dataflow.as_of is None else dataflow.as_of
        if as_of.is_empty or not self._first.keys().isdisjoint(ids):
            return
        self._created[ids[0]] = dataflow.at(MINIMUM_FRONTIER)
        self._first |= dict.fromkeys(ids, ids[0])
        self.sinces |= dict.fromkeys(ids, as_of)

    def _compact(self, global_id: GlobalId, since: Frontier) -> None:
        known = self.sinces.get(global_id)
        if known is None or since <= known:
            return
        self.sinces[global_id] = since
        first = self._first.get(global_id)
        if first is not None and since.is_empty and self._as_of(self._created[first]).is_empty:
            self._forget(self._created[first])

    def _forget(self, dataflow: DataflowDescription) -> None:
        del self._created[dataflow.export_ids[0]]
        for each in dataflow.export_ids:
            del self._first[each], self.sinces[each]
            self.scheduled.discard(each)
            self.outputs.pop(each, None)
            self.writing.discard(each)


def replayed(commands: Iterable[Command]) -> ReplicaState:
    """The state of a replica that was told exactly these."""
    state = ReplicaState()
    for command in commands:
        state.apply(command)
    return state


def reduce(commands: Iterable[Command]) -> tuple[Command, ...]:
    """Fewer commands with the same result: the last word on each object."""
    return replayed(commands).commands()
