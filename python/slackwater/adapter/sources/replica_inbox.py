"""The words of the storage controller to the replicas of this process.

The controller gives commands when its state changes, which is before the catalog shows the change.
So they wait, in their order, until whoever changes the catalog has them carried out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from slackwater.controller.protocol import Hello, ReplicaKey
from slackwater.storage.controller.effects import DisconnectReplica, SendToReplica, ToReplica
from slackwater.storage.controller.protocol import Command


class ReplicaInbox:
    """The commands that replicas have not carried out yet, in one order for all.

    So what leaves one replica has ended there before it begins on another one.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[ReplicaKey, Command | DisconnectReplica]] = deque()

    def push(self, effect: ToReplica) -> None:
        """Takes a command or the end of a connection, in any thread; each begins with `Hello`."""
        match effect:
            case SendToReplica(key, command):
                self._waiting.append((key, command))
            case DisconnectReplica(key):
                self._waiting.append((key, effect))
            case _:
                pass

    def drain(self) -> Iterator[tuple[ReplicaKey, Command | DisconnectReplica]]:
        """The commands, each taken off when it is asked for; new ones come at the end."""
        while self._waiting:
            yield self._waiting.popleft()

    def is_coming(self, key: ReplicaKey) -> bool:
        """Whether another connection to the replica begins among what waits."""
        return any(to == key and isinstance(each, Hello) for to, each in list(self._waiting))
