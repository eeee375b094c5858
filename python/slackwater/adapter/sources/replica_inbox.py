"""The commands of the storage controller to the replica of this process.

The controller gives commands when its state changes, which is before the catalog shows the change.
So they wait, in their order, until whoever changes the catalog has them carried out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from slackwater.controller.protocol import AllowCompaction, UpdateConfiguration
from slackwater.storage.controller.protocol import Command, RunIngestion, RunSink

Carried = RunIngestion | RunSink | AllowCompaction | UpdateConfiguration
"""The commands of which something follows for the replica of this process."""


class ReplicaInbox:
    """The commands that the replica has not carried out yet, in their order."""

    def __init__(self) -> None:
        self._commands: deque[Carried] = deque()

    def push(self, command: Command) -> None:
        """Takes a command, in any thread. Compaction itself is not the replica's work here."""
        match command:
            case RunIngestion() | RunSink() | UpdateConfiguration():
                self._commands.append(command)
            case AllowCompaction(_, since) if since.is_empty:
                self._commands.append(command)
            case _:
                pass

    def drain(self) -> Iterator[Carried]:
        """The commands, each taken off when it is asked for; new ones come at the end."""
        while self._commands:
            yield self._commands.popleft()
