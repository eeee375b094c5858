"""The protocol between the compute controller and its replicas, as values.

Commands reach a replica in the order in which they were sent, while its connection lasts: first
those that create it, then any, then once `InitializationComplete`, then any. `encoding` turns both
sides into bytes. Source: spec controllers 4.1, 4.7 to 4.10.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from slackwater.compute.controller.descriptions import DataflowDescription
from slackwater.compute.peeked_rows import PeekLimits, PeekStashed, Stash
from slackwater.controller.protocol import (
    AllowCompaction,
    Hello,
    InitializationComplete,
    Parameters,
    ReplicaKey,
    UpdateConfiguration,
)
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.ids import GlobalId


class Log(Enum):
    """An index over what a replica says of itself; each row is one such record."""

    TICKS = "ticks"
    HYDRATION_PROGRESS = "hydration progress"
    ARRANGEMENTS = "arrangements"
    TICK_TOTALS = "tick totals"
    ARRANGEMENT_MEMORY = "arrangement memory"
    HYDRATIONS = "hydrations"


# Commands


@dataclass(frozen=True, slots=True)
class CreateInstance:
    """Begins an instance: `parameters` never change, `logs` are indexes that it has from 0 on.

    The first logs are those of `Log`, in its order.
    """

    parameters: Parameters = ()
    logs: tuple[GlobalId, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateDataflow:
    """Installs the dataflow, which reads nothing until each of its exports is scheduled."""

    dataflow: DataflowDescription


@dataclass(frozen=True, slots=True)
class Schedule:
    """Lets the dataflow of this export read its inputs. Sent once."""

    id: GlobalId


@dataclass(frozen=True, slots=True)
class AllowWrites:
    """Lets what is computed for this export be sent as `Computed`. It is never taken back."""

    id: GlobalId


@dataclass(frozen=True, slots=True)
class OutputAdvanced:
    """The stored output of the export is complete up to `upper`.

    What was computed and begins anywhere else is worth nothing: the next `Computed` begins there.
    """

    id: GlobalId
    upper: Frontier


UNLIMITED = PeekLimits((1 << 31) - 1, (1 << 31) - 1)


@dataclass(frozen=True, slots=True)
class Peek:
    """Reads the index `id` at `time`, once it is complete there; answered once.

    A log is complete at all times, and has what it has when the command comes. `keys`: an Arrow IPC
    stream with a row for each key whose rows are wanted; None: all rows. A peek that finds more
    than its `limits` allow fails; one of all rows puts them into its `stash` if it has one.
    """

    peek_id: str
    id: GlobalId
    time: Timestamp
    keys: bytes | None = None
    limits: PeekLimits = UNLIMITED
    stash: Stash | None = None


@dataclass(frozen=True, slots=True)
class CancelPeek:
    """Nobody wants the answer any more."""

    peek_id: str


Command = (
    Hello
    | CreateInstance
    | UpdateConfiguration
    | InitializationComplete
    | AllowWrites
    | CreateDataflow
    | Schedule
    | AllowCompaction
    | OutputAdvanced
    | Peek
    | CancelPeek
)

# Responses of replicas


@dataclass(frozen=True, slots=True)
class Problem:
    """An error that users are told. `began_ms`: since when, in milliseconds since the epoch."""

    condition: str
    sqlstate: str
    message: str
    began_ms: int = 0

    def __str__(self) -> str:
        return f"[{self.condition}] {self.message} SQLSTATE: {self.sqlstate}"


@dataclass(frozen=True, slots=True)
class DataflowStatus:
    """The state of an export on a replica, as a whole: what was told before is over.

    `failure`: why it does not go on; it is tried again. `is_stalled`: it has failed so often that
    people are told who did not ask. `out_of_memory`: why it keeps nothing of what it looks up.
    """

    id: GlobalId
    failure: Problem | None = None
    is_stalled: bool = False
    out_of_memory: Problem | None = None


@dataclass(frozen=True, slots=True)
class IndexOpened:
    """Queries in the replica's driver find the index as `program`; None: it is not there.

    Told before the first frontier report about that program.
    """

    id: GlobalId
    program: str | None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The replica lives, and uses no name of a file that it got more than `busy_ms` ago."""

    busy_ms: int


@dataclass(frozen=True, slots=True)
class FrontierReport:
    """The progress of the export on the replica; None: as before.

    Before `write` its contents are complete, before `input` its inputs have been read, before
    `output` it has been computed. After the empty frontier nothing follows.
    """

    id: GlobalId
    write: Frontier | None = None
    input: Frontier | None = None
    output: Frontier | None = None


@dataclass(frozen=True, slots=True)
class PeekRows:
    """The rows of a peek, as an Arrow stream."""

    rows: bytes


@dataclass(frozen=True, slots=True)
class PeekFailed:
    """The peek has no rows, because of `error`. `problem` has more about one of a user's errors."""

    error: str
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class PeekCanceled:
    """The peek ended before it had an answer."""


PeekAnswer = PeekRows | PeekStashed | PeekFailed | PeekCanceled


@dataclass(frozen=True, slots=True)
class PeekAnswered:
    """A replica's one answer to a peek."""

    peek_id: str
    answer: PeekAnswer


@dataclass(frozen=True, slots=True)
class SubscribeUpdate:
    """All changes of a subscription at `time`: an Arrow IPC stream, which nobody reads here."""

    time: Timestamp
    rows: bytes


@dataclass(frozen=True, slots=True)
class SubscribeBatch:
    """All updates of a subscription with times in ``[lower, upper)``, or why there are none.

    The batches of one replica follow on one another from 0 on.
    """

    id: GlobalId
    lower: Frontier
    upper: Frontier
    updates: tuple[SubscribeUpdate, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SubscribeDropped:
    """The subscription was dropped; batches came up to `frontier`, and none will come."""

    id: GlobalId
    frontier: Frontier


@dataclass(frozen=True, slots=True)
class CopyToRows:
    """So many rows were written."""

    count: int


@dataclass(frozen=True, slots=True)
class CopyToFailed:
    """Nothing that counts was written, because of `error`."""

    error: str


@dataclass(frozen=True, slots=True)
class CopyToDropped:
    """The copy was dropped before it ended."""


CopyToAnswer = CopyToRows | CopyToFailed | CopyToDropped


@dataclass(frozen=True, slots=True)
class CopyToAnswered:
    """A replica's one answer to a copy."""

    id: GlobalId
    answer: CopyToAnswer


@dataclass(frozen=True, slots=True)
class Computed:
    """The updates of a materialized view with times in ``[lower, upper)``, to be committed.

    `rows` and `errors` are what its two shards get, opaque here: Arrow, or staged files by name.
    """

    id: GlobalId
    lower: Frontier
    upper: Frontier
    rows: bytes = b""
    errors: bytes = b""


ReplicaResponse = (
    FrontierReport
    | PeekAnswered
    | SubscribeBatch
    | SubscribeDropped
    | CopyToAnswered
    | Computed
    | DataflowStatus
    | IndexOpened
    | Heartbeat
)

# Responses to the controller


@dataclass(frozen=True, slots=True)
class FromReplica:
    """A response that came over the connection `nonce` of the replica."""

    replica: ReplicaKey
    nonce: int
    response: ReplicaResponse


@dataclass(frozen=True, slots=True)
class ReplicaFailed:
    """The connection `nonce` of the replica has ended; what was under way is lost."""

    replica: ReplicaKey
    nonce: int


@dataclass(frozen=True, slots=True)
class OutputCommitted:
    """The commit with this ticket is durable."""

    ticket: int


@dataclass(frozen=True, slots=True)
class OutputRefused:
    """The commit with this ticket did not happen: the output is complete up to `upper`."""

    ticket: int
    upper: Frontier


@dataclass(frozen=True, slots=True)
class OutputFailed:
    """The commit with this ticket failed; the stored upper tells whether it happened."""

    ticket: int


Response = FromReplica | ReplicaFailed | OutputCommitted | OutputRefused | OutputFailed
