"""The replica of this process, which runs ingestions and sinks by the controller's commands.

Its commands wait in `ReplicaInbox` until whoever changes the catalog has them carried out. The
first ones of a connection, up to `InitializationComplete`, say all that is to run: what runs
already, and is described in the same way, goes on. Source: spec controllers 2.7, I39.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from slackwater.adapter.controllers.collections import INSTANCE, REPLICA
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


class StorageReplica:
    """Carries out the commands of the controller. `respond` takes its responses to it.

    `configure` is told the parameters that have other values.
    """

    def __init__(
        self,
        inbox: ReplicaInbox,
        sources: Sources,
        sinks: SinkRunner,
        respond: Callable[[Response], None],
        configure: Callable[[Mapping[str, str]], None],
    ) -> None:
        self._inbox = inbox
        self._sources = sources
        self._sinks = sinks
        self._respond = respond
        self._configure = configure
        self._state = ReplicaState()
        self._first: list[Command] | None = None
        """The commands of a connection that has not said all yet."""
        self._is_connected = False

    def apply_commands(self) -> None:
        """Carries out the commands. The caller holds the catalog's lock, so no two threads do.

        Without a connection when all is done, what runs ends: the next one begins with what is
        durable.
        """
        for command in self._inbox.drain():
            match command:
                case DisconnectReplica():
                    self._is_connected, self._first = False, None
                case Hello():
                    self._is_connected, self._first = True, [command]
                case InitializationComplete() if self._first is not None:
                    self._reconcile([*self._first, command])
                    self._first = None
                case _ if self._first is not None:
                    self._first.append(command)
                case _:
                    self._carry_out(command)
        if not self._is_connected:
            for global_id in (*self._state.ingestions, *self._state.sinks):
                self._stop(global_id)
            self._state = ReplicaState()

    def _reconcile(self, commands: list[Command]) -> None:
        found = reconcile(self._state, commands)
        again = {run.id for run in found.start}
        for global_id in found.stop:
            if global_id in again:
                self._stop(global_id)
            else:
                self._give_up(global_id)
        self._state = found.state
        self._configure(found.state.parameters)
        for run in found.start:
            self._run(run)

    def _carry_out(self, command: Command) -> None:
        self._state.apply(command)
        match command:
            case RunIngestion() | RunSink():
                self._run(command)
            case UpdateConfiguration(parameters):
                self._configure(dict(parameters))
            case AllowCompaction(global_id, since) if since.is_empty:
                self._give_up(global_id)
            case _:
                # Compaction itself is not the replica's work here.
                pass

    def _run(self, command: RunIngestion | RunSink) -> None:
        match command:
            case RunIngestion():
                self._sources.run(command)
            case RunSink():
                self._sinks.run(command)

    def _stop(self, global_id: GlobalId) -> None:
        """Ends the object, if it runs. When this returns, an ingestion has done its last step.

        A sink may still be writing, if that takes long (`SinkRunner.remove`).
        """
        self._sources.stop(global_id)
        self._sinks.remove(global_id)

    def _give_up(self, global_id: GlobalId) -> None:
        self._stop(global_id)
        self._respond(DroppedIds(ReplicaKey(INSTANCE, REPLICA), (global_id,)))
