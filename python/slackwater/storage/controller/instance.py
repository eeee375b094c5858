"""One storage instance: its replicas, and which of them runs what. Source: spec 2.3 M4-M6, 2.7."""

from __future__ import annotations

from dataclasses import dataclass, field

from slackwater.controller.history import CommandHistory
from slackwater.controller.protocol import AllowCompaction, Hello, ReplicaKey
from slackwater.repr.errors import FatalError
from slackwater.storage.controller.effects import (
    ConnectReplica,
    DisconnectReplica,
    Effect,
    SendToReplica,
)
from slackwater.storage.controller.history import reduce
from slackwater.storage.controller.protocol import Command, RunIngestion, RunSink


@dataclass(slots=True)
class Instance:
    """Replicas by name, in the order of which the first runs what only one may run.

    Sinks run on one replica, the lowest by name, and move only when it goes away. Ingestions run
    on one as well: their writes are decided by the upper of their shards, so a second one would
    only do the same work again.
    """

    id: str
    history: CommandHistory[Command] = field(default_factory=lambda: CommandHistory(reduce))
    replicas: dict[str, str] = field(default_factory=dict)
    active: str | None = None
    _connections: int = 0

    def send(self, command: Command) -> list[Effect]:
        """Remembers the command for replicas to come and tells those that are there."""
        self.history.push(command)
        return [
            SendToReplica(ReplicaKey(self.id, replica), command)
            for replica in sorted(self.replicas)
            if replica == self.active or not _only_one(command)
        ]

    def connect(self, replica: str, location: str) -> list[Effect]:
        """Attaches a replica; one of the same name is left for the new connection."""
        effects: list[Effect] = []
        if replica in self.replicas:
            effects.append(DisconnectReplica(ReplicaKey(self.id, replica)))
        self.replicas[replica] = location
        if self.active is None:
            self.active = replica
        return [*effects, *self._rehydrate(replica)]

    def disconnect(self, replica: str) -> list[Effect]:
        """Detaches a replica. What only it ran moves to the lowest one that is left."""
        if self.replicas.pop(replica, None) is None:
            raise FatalError(f"the instance {self.id} has no replica {replica}")
        effects: list[Effect] = [DisconnectReplica(ReplicaKey(self.id, replica))]
        if replica != self.active:
            return effects
        self.active = min(self.replicas, default=None)
        return [*effects, *([] if self.active is None else self._rehydrate(self.active))]

    def validate(self) -> None:
        """Raises FatalError unless a replica runs what only one may run, and I38 holds."""
        if self.active not in (self.replicas or {None}):
            raise FatalError(f"of {sorted(self.replicas)} the active one is {self.active}")
        self.history.validate()

    def _rehydrate(self, replica: str) -> list[Effect]:
        key = ReplicaKey(self.id, replica)
        self.history.reduce()
        self._connections += 1
        replay = [
            command
            for command in self.history.commands
            if replica == self.active or not _only_one(command)
        ]
        return [
            ConnectReplica(key, self.replicas[replica]),
            *(SendToReplica(key, command) for command in (Hello(self._connections), *replay)),
        ]


def _only_one(command: Command) -> bool:
    return isinstance(command, RunIngestion | RunSink | AllowCompaction)
