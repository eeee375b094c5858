"""The words of the storage controller to the replica of this process.

The controller gives commands when its state changes, which is before the catalog shows the change.
So they wait, in their order, until whoever changes the catalog has them carried out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from slackwater.controller.protocol import ReplicaKey
from slackwater.storage.controller.effects import DisconnectReplica, SendToReplica, ToReplica
from slackwater.storage.controller.protocol import Command


class ReplicaInbox:
    """The commands that the replica `key` has not carried out yet, in their order."""

    def __init__(self, key: ReplicaKey) -> None:
        self._key = key
        self._waiting: deque[Command | DisconnectReplica] = deque()

    def push(self, effect: ToReplica) -> None:
        """Takes a command or the end of a connection, in any thread; each begins with `Hello`.

        What is for other replicas is left out.
        """
        if effect.to != self._key:
            return
        match effect:
            case SendToReplica(_, command):
                self._waiting.append(command)
            case DisconnectReplica():
                self._waiting.append(effect)
            case _:
                pass

    def drain(self) -> Iterator[Command | DisconnectReplica]:
        """The commands, each taken off when it is asked for; new ones come at the end."""
        while self._waiting:
            yield self._waiting.popleft()
