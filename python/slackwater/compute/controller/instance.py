"""One compute instance: its replicas, what each was told, and how far it is with each export.

All replicas of an instance compute the same, but for dataflows that name one. Source: spec
controllers 4.2, 4.7, 4.10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from slackwater.compute.controller.descriptions import DataflowDescription
from slackwater.compute.controller.effects import (
    ConnectReplica,
    DisconnectReplica,
    Effect,
    SendToReplica,
)
from slackwater.compute.controller.history import reduce
from slackwater.compute.controller.hydration import SequentialHydration, is_hydrated
from slackwater.compute.controller.protocol import (
    AllowWrites,
    CancelPeek,
    Command,
    CreateDataflow,
    DataflowStatus,
    FrontierReport,
    OutputAdvanced,
    Peek,
    ReplicaResponse,
    Schedule,
)
from slackwater.controller.history import CommandHistory
from slackwater.controller.holds import ReadHold
from slackwater.controller.protocol import AllowCompaction, Hello, ReplicaKey
from slackwater.repr.frontier import Frontier
from slackwater.repr.ids import GlobalId


@dataclass(slots=True)
class ReplicaCollection:
    """One export on one replica, and the holds on what it still reads.

    All frontiers begin at the as-of that the replica was told.
    """

    as_of: Frontier
    write: Frontier
    input: Frontier
    output: Frontier
    input_holds: dict[GlobalId, ReadHold] = field(default_factory=dict)

    @property
    def is_hydrated(self) -> bool:
        """True once the replica has the contents at the as-of."""
        return is_hydrated(self.as_of, self.output)

    @property
    def is_done(self) -> bool:
        """True once the replica works on it no more."""
        return self.write.is_empty and self.input.is_empty and self.output.is_empty

    def take(self, report: FrontierReport) -> str | None:
        """Moves the frontiers; of one that would go back, or on from its end, it says so (I47)."""
        violation = None
        for name in ("write", "input", "output"):
            new: Frontier | None = getattr(report, name)
            old: Frontier = getattr(self, name)
            if new is None:
                continue
            if old.is_empty or new < old:
                violation = f"the {name} frontier of {report.id} goes from {old} to {new}"
            else:
                setattr(self, name, new)
        return violation


@dataclass(slots=True)
class Replica:
    """A replica and its present connection.

    `statuses` are the last that it has told, `programs` the names of the indexes in its driver.
    `former` are dropped exports whose ids are in use again: what it says is about the first of them
    until that is done.
    """

    key: ReplicaKey
    location: str
    nonce: int
    hydration: SequentialHydration
    collections: dict[GlobalId, ReplicaCollection] = field(default_factory=dict)
    statuses: dict[GlobalId, DataflowStatus] = field(default_factory=dict)
    programs: dict[GlobalId, str] = field(default_factory=dict)
    former: dict[GlobalId, list[ReplicaCollection]] = field(default_factory=dict)
    has_failed: bool = False

    def is_about_former(self, response: ReplicaResponse) -> bool:
        """True if the response is about an export that was dropped, and whose id is in use again.

        The replica takes commands in order, so it has said that all of that is over before it says
        anything of the present one.
        """
        global_id = getattr(response, "id", None)
        if global_id is None or global_id not in self.former:
            return False
        waiting = self.former[global_id]
        if isinstance(response, FrontierReport):
            waiting[0].take(response)
            if waiting[0].is_done:
                waiting.pop(0)
            if not waiting:
                del self.former[global_id]
        return True

    def send(self, command: Command) -> list[Effect]:
        """The effects of telling the replica; of one that has failed nobody is told."""
        return self.forward(self.hydration.command(command))

    def forward(self, commands: Iterable[Command]) -> list[Effect]:
        """The effects of sending what its hydration lets through."""
        found: list[Effect] = [SendToReplica(self.key, self.nonce, each) for each in commands]
        return [] if self.has_failed else found


class Instance:
    """The replicas by name, and the commands for those to come. Not thread-safe."""

    def __init__(self, instance_id: str) -> None:
        self.id = instance_id
        self.history = CommandHistory[Command](reduce)
        self.replicas: dict[str, Replica] = {}
        self.targets: dict[GlobalId, str] = {}
        """Exports of which only one replica is told."""
        self.peek_targets: dict[str, str] = {}
        """Peeks of which only one replica is told."""

    def send(self, command: Command) -> list[Effect]:
        """Remembers the command for replicas to come and tells those that are there."""
        self.history.push(command)
        target = self._target(command)
        effects: list[Effect] = []
        for name, replica in self.replicas.items():
            if target is None or target == name:
                effects += replica.send(command)
        return effects

    def hosting(self, target_replica: str | None) -> Iterator[Replica]:
        """The replicas that compute what is for all, or for that one."""
        for name, replica in self.replicas.items():
            if target_replica is None or target_replica == name:
                yield replica

    def connect(self, replica: Replica, uppers: Callable[[GlobalId], Frontier]) -> list[Effect]:
        """Attaches the replica and tells it all that it must know.

        `uppers` says how far stored collections are now.
        """
        self.replicas[replica.key.replica] = replica
        effects: list[Effect] = [ConnectReplica(replica.key, replica.location, replica.nonce)]
        effects += replica.send(Hello(replica.nonce))
        self.history.reduce()
        for command in self.history.commands:
            target = self._target(command)
            if target is None or target == replica.key.replica:
                if isinstance(command, CreateDataflow):
                    command = CreateDataflow(refreshed(command.dataflow, uppers))
                effects += replica.send(command)
        return effects

    def disconnect(self, name: str) -> tuple[Replica, list[Effect]]:
        """Detaches the replica, which is known."""
        replica = self.replicas.pop(name)
        return replica, [DisconnectReplica(replica.key, replica.nonce)]

    def _target(self, command: Command) -> str | None:
        match command:
            case CreateDataflow(dataflow):
                return self.targets.get(dataflow.export_ids[0])
            case (
                Schedule(global_id)
                | AllowCompaction(global_id, _)
                | AllowWrites(global_id)
                | OutputAdvanced(global_id, _)
            ):
                return self.targets.get(global_id)
            case Peek(peek_id) | CancelPeek(peek_id):
                return self.peek_targets.get(peek_id)
            case _:
                return None

    def validate(self) -> None:
        """Raises FatalError unless the history is short (I38) and few hydrate at once (I48)."""
        self.history.validate()
        for replica in self.replicas.values():
            replica.hydration.validate()


def refreshed(
    dataflow: DataflowDescription, uppers: Callable[[GlobalId], Frontier]
) -> DataflowDescription:
    """The description with the present uppers of what it reads."""
    sources = tuple(replace(each, upper=uppers(each.id)) for each in dataflow.source_imports)
    return dataflow if not sources else replace(dataflow, source_imports=sources)
