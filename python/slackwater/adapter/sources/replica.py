"""The replicas of this process, which run ingestions and sinks by the controller's commands.

Their commands wait in `ReplicaInbox` until whoever changes the catalog has them carried out. The
first ones of a connection, up to `InitializationComplete`, say all that is to run: what runs
already, and is described in the same way, goes on. Source: spec controllers 2.7, I39.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slackwater.adapter.sources.replica_inbox import ReplicaInbox
from slackwater.adapter.sources.sinks import SinkRunner
from slackwater.adapter.sources.sources import Sources
from slackwater.controller.protocol import (
    AllowCompaction,
    DroppedIds,
    Hello,
    InitializationComplete,
    ReplicaKey,
    UpdateConfiguration,
)
from slackwater.repr.ids import GlobalId
from slackwater.storage.controller.effects import DisconnectReplica
from slackwater.storage.controller.history import ReplicaState, reconcile
from slackwater.storage.controller.protocol import Command, Response, RunIngestion, RunSink


@dataclass(slots=True)
class _Replica:
    state: ReplicaState = field(default_factory=ReplicaState)
    first: list[Command] | None = None
    """The commands of a connection that has not said all yet."""


@dataclass(frozen=True, slots=True)
class StorageReplicas:
    """Carries out the commands of the controller. `respond` takes their responses to it.

    `configure` is told the parameters that have other values.
    """

    inbox: ReplicaInbox
    sources: Sources
    sinks: SinkRunner
    respond: Callable[[Response], None]
    configure: Callable[[Mapping[str, str]], None]
    _replicas: dict[ReplicaKey, _Replica] = field(default_factory=dict, init=False)

    def apply_commands(self) -> None:
        """Carries out the commands. The caller holds the catalog's lock, so no two threads do.

        What a replica runs ends with its connection, unless another one to it begins at once: the
        next one begins with what is durable.
        """
        for key, command in self.inbox.drain():
            match command:
                case DisconnectReplica():
                    if not self.inbox.is_coming(key):
                        self._end(key)
                case Hello():
                    self._replicas.setdefault(key, _Replica()).first = [command]
                case _:
                    self._take(key, self._replicas[key], command)

    def _end(self, key: ReplicaKey) -> None:
        replica = self._replicas.pop(key, _Replica())
        for global_id in (*replica.state.ingestions, *replica.state.sinks):
            self._stop(global_id)

    def _take(self, key: ReplicaKey, replica: _Replica, command: Command) -> None:
        if replica.first is None:
            self._carry_out(key, replica, command)
            return
        replica.first.append(command)
        if isinstance(command, InitializationComplete):
            commands, replica.first = replica.first, None
            self._reconcile(key, replica, commands)

    def _reconcile(self, key: ReplicaKey, replica: _Replica, commands: list[Command]) -> None:
        found = reconcile(replica.state, commands)
        again = {run.id for run in found.start}
        for global_id in found.stop:
            if global_id in again:
                self._stop(global_id)
            else:
                self._give_up(key, global_id)
        replica.state = found.state
        self.configure(found.state.parameters)
        for run in found.start:
            self._run(run)

    def _carry_out(self, key: ReplicaKey, replica: _Replica, command: Command) -> None:
        replica.state.apply(command)
        match command:
            case RunIngestion() | RunSink():
                self._run(command)
            case UpdateConfiguration(parameters):
                self.configure(dict(parameters))
            case AllowCompaction(global_id, since) if since.is_empty:
                self._give_up(key, global_id)
            case _:
                # Compaction itself is not the replica's work here.
                pass

    def _run(self, command: RunIngestion | RunSink) -> None:
        match command:
            case RunIngestion():
                self.sources.run(command)
            case RunSink():
                self.sinks.run(command)

    def _stop(self, global_id: GlobalId) -> None:
        """Ends the object, if it runs. When this returns, an ingestion has done its last step.

        A sink may still be writing, if that takes long (`SinkRunner.remove`).
        """
        self.sources.stop(global_id)
        self.sinks.remove(global_id)

    def _give_up(self, key: ReplicaKey, global_id: GlobalId) -> None:
        self._stop(global_id)
        self.respond(DroppedIds(key, (global_id,)))
