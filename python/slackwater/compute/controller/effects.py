"""The effects of the compute controller. A shell carries them out in this order.

None of them is durable but `CommitOutput`: a controller that ends is made again from the catalog.
"""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.compute.controller.protocol import (
    Command,
    CopyToAnswer,
    DataflowStatus,
    PeekAnswer,
    SubscribeUpdate,
)
from slackwater.controller.protocol import ReplicaKey
from slackwater.repr.frontier import Frontier
from slackwater.repr.ids import GlobalId


@dataclass(frozen=True, slots=True)
class ConnectReplica:
    """Opens a connection to the replica at `location`; its end is told by `ReplicaFailed`.

    `nonce` is told with all that comes over it.
    """

    to: ReplicaKey
    location: str
    nonce: int


@dataclass(frozen=True, slots=True)
class DisconnectReplica:
    """Ends that connection; the replica may go on alone for a while."""

    to: ReplicaKey
    nonce: int


@dataclass(frozen=True, slots=True)
class SendToReplica:
    """Sends the command over the connection `nonce`, or does nothing if that has ended."""

    to: ReplicaKey
    nonce: int
    command: Command


@dataclass(frozen=True, slots=True)
class CommitOutput:
    """Appends ``[lower, upper)`` to the stored collection `target`, if its upper is `lower`.

    Answered once, by `OutputCommitted`, `OutputRefused` or `OutputFailed`. `id` is the export that
    it is an output of, `replica` the first that computed it.
    """

    ticket: int
    id: GlobalId
    target: GlobalId
    lower: Frontier
    upper: Frontier
    rows: bytes
    errors: bytes
    replica: ReplicaKey


@dataclass(frozen=True, slots=True)
class AnswerPeek:
    """The client is told; this is the one answer to the peek."""

    peek_id: str
    answer: PeekAnswer


@dataclass(frozen=True, slots=True)
class DiscardStash:
    """The file of an answer to a peek that nobody waits for is to be deleted."""

    uri: str


@dataclass(frozen=True, slots=True)
class DeliverSubscribe:
    """The client gets all updates with times in ``[lower, upper)``, or an error and no more."""

    id: GlobalId
    lower: Frontier
    upper: Frontier
    updates: tuple[SubscribeUpdate, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerCopyTo:
    """The client is told; this is the one answer to the copy."""

    id: GlobalId
    answer: CopyToAnswer


@dataclass(frozen=True, slots=True)
class ReportUpper:
    """The export is complete up to `upper`; whoever waits for it can look again."""

    id: GlobalId
    upper: Frontier


@dataclass(frozen=True, slots=True)
class ReportStatus:
    """The replica has told another status of an export; `before` is what it was."""

    replica: ReplicaKey
    before: DataflowStatus
    now: DataflowStatus


@dataclass(frozen=True, slots=True)
class RenewLease:
    """The replica lives, and uses no name of a file that it got more than `busy_ms` ago."""

    replica: ReplicaKey
    busy_ms: int


@dataclass(frozen=True, slots=True)
class ReportViolation:
    """The replica has said what it must not say, and it was ignored; to be logged."""

    replica: ReplicaKey
    message: str


Effect = (
    ConnectReplica
    | DisconnectReplica
    | SendToReplica
    | CommitOutput
    | AnswerPeek
    | DiscardStash
    | DeliverSubscribe
    | AnswerCopyTo
    | ReportUpper
    | ReportStatus
    | RenewLease
    | ReportViolation
)
