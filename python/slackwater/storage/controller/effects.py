"""The effects of the controller. A shell carries them out in this order, one after the other.

Between any two of them the process may die: the durable ones are such that every prefix leaves a
state from which the next start goes on (spec controllers 2.3, trap 8).
"""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.controller.holds import ReadHold
from slackwater.controller.protocol import Parameters, ReplicaKey
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.storage.controller.errors import StorageError
from slackwater.storage.controller.protocol import Command


@dataclass(frozen=True, slots=True)
class RegisterFinalization:
    """These shards must go: remembered durably, whatever happens next."""

    shards: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReclaimShards:
    """These shards need not go, durably: objects have them."""

    shards: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FinalizeShard:
    """Empties the shard for ever; answered by `ShardFinalized`. A tombstone stays as it is."""

    shard_id: int


@dataclass(frozen=True, slots=True)
class DowngradeSince:
    """Moves the durable since of a shard forward. Late is harmless; it is never early."""

    shard_id: int
    since: Frontier


@dataclass(frozen=True, slots=True)
class SendToReplica:
    """Tells one replica."""

    to: ReplicaKey
    command: Command


@dataclass(frozen=True, slots=True)
class ConnectReplica:
    """Opens the connection to a replica; what is said before is lost."""

    to: ReplicaKey
    location: str


@dataclass(frozen=True, slots=True)
class DisconnectReplica:
    """Ends the connection to a replica, which may go on alone for a while."""

    to: ReplicaKey


@dataclass(frozen=True, slots=True)
class ShardAppend:
    """Rows for one shard, whose upper moves from `lower` to `upper`.

    `rows` are opaque here, and None if there are none.
    `shares_tables_upper`: that upper is the one that all tables and sources share.
    """

    id: GlobalId
    shard_id: int
    lower: Frontier
    upper: Frontier
    rows: object | None
    shares_tables_upper: bool = False


@dataclass(frozen=True, slots=True)
class AppendRows:
    """All of it or nothing; answered by `AppendDone`, `AppendRefused` or `AppendFailed`.

    `tables`: from where to where the upper moves that all tables and sources share; None: it stays.
    `extras` is what else belongs into the commit, opaque here.
    """

    ticket: int
    appends: tuple[ShardAppend, ...]
    tables: tuple[Frontier, Frontier] | None = None
    extras: object = None


@dataclass(frozen=True, slots=True)
class AnswerAppend:
    """Whoever appended is told how it went; `error` is None if it is durable."""

    ticket: int
    error: StorageError | None = None


@dataclass(frozen=True, slots=True)
class ReadSnapshot:
    """Reads the shard at `as_of`, which is complete; answered by `SnapshotRead`.

    `hold` keeps it readable until then.
    """

    ticket: int
    id: GlobalId
    shard_id: int
    as_of: Timestamp
    hold: ReadHold


@dataclass(frozen=True, slots=True)
class AnswerSnapshot:
    """The snapshot cannot be read."""

    ticket: int
    error: StorageError


@dataclass(frozen=True, slots=True)
class Configure:
    """The controller's own process goes on with these parameters; others keep their values."""

    parameters: Parameters


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """A row of the status history; the shell adds the time."""

    id: GlobalId
    status: str
    error: str | None = None


ToReplica = SendToReplica | ConnectReplica | DisconnectReplica

Effect = (
    RegisterFinalization
    | ReclaimShards
    | FinalizeShard
    | DowngradeSince
    | ToReplica
    | AppendRows
    | AnswerAppend
    | ReadSnapshot
    | AnswerSnapshot
    | Configure
    | WriteStatus
)
