"""The replica of this process, which runs ingestions and sinks by the controller's commands.

Its commands wait in `ReplicaInbox` until whoever changes the catalog has them carried out.
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
    ReplicaKey,
    UpdateConfiguration,
)
from slackwater.repr.ids import GlobalId
from slackwater.storage.controller.protocol import Response, RunIngestion, RunSink


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

    def apply_commands(self) -> None:
        """Carries out the commands. The caller holds the catalog's lock, so no two threads do."""
        for command in self._inbox.drain():
            match command:
                case RunIngestion():
                    self._sources.run(command)
                case RunSink():
                    self._sinks.run(command)
                case UpdateConfiguration(parameters):
                    self._configure(dict(parameters))
                case AllowCompaction(global_id):
                    self._give_up(global_id)

    def _give_up(self, global_id: GlobalId) -> None:
        """Ends the object, if it runs. When this returns, an ingestion has done its last step.

        A sink may still be writing, if that takes long (`SinkRunner.remove`).
        """
        self._sources.stop(global_id)
        self._sinks.remove(global_id)
        self._respond(DroppedIds(ReplicaKey(INSTANCE, REPLICA), (global_id,)))
