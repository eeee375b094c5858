"""The seam between a source and a client of Kafka: what can be asked of a topic.

Source: docs/decisions 0069.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """A topic that was deleted and made again has another id, and maybe other contents."""

    cluster: str
    topic: str


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as the brokers have it: its identity, and the number of its partitions."""

    identity: TopicIdentity
    partitions: int


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages by columns. Those of one partition are in the order of their offsets.

    `sent_ms` is when each was sent, in milliseconds since the epoch; None: Kafka does not say.
    `headers` is empty if nobody asked for them.
    """

    partitions: Sequence[int] = ()
    offsets: Sequence[int] = ()
    sent_ms: Sequence[int | None] = ()
    keys: Sequence[bytes | None] = ()
    values: Sequence[bytes | None] = ()
    headers: Sequence[Sequence[Header]] = ()

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def size_bytes(self) -> int:
        """The bytes of all keys and values."""
        return sum(len(each) for part in (self.keys, self.values) for each in part if each)

    def at(self, places: Sequence[int]) -> Messages:
        """Those at these places."""
        return Messages(
            [self.partitions[n] for n in places],
            [self.offsets[n] for n in places],
            [self.sent_ms[n] for n in places],
            [self.keys[n] for n in places],
            [self.values[n] for n in places],
            [self.headers[n] for n in places] if self.headers else (),
        )

    def places(self) -> Iterator[tuple[int, int]]:
        """The partition and the offset of each message."""
        return zip(self.partitions, self.offsets, strict=True)


@dataclass(frozen=True, slots=True)
class Read:
    """The messages that a read brought.

    `positions` are the next offsets of partitions that went on. One may be behind the last message:
    marks of transactions take offsets too.
    """

    messages: Messages
    positions: Mapping[int, int]


class Topic(Protocol):
    """One topic, read by one client that is connected to it. Not thread-safe.

    Each method raises SLACKWATER_SOURCE_UNREACHABLE when no broker answers.
    """

    def state(self) -> TopicState:
        """The topic as it is now. Raises SLACKWATER_UNKNOWN_TOPIC."""
        ...

    def topic_id(self) -> str:
        """The id of the topic as it is now. Raises SLACKWATER_UNKNOWN_TOPIC."""
        ...

    def ends(self, partitions: Sequence[int]) -> Mapping[int, int]:
        """The offset of each partition before which all that is committed can be read."""
        ...

    def said_ends(self, partitions: Sequence[int]) -> Mapping[int, int]:
        """The ends of partitions as brokers have said with what was read last, of those of which
        they have. They may have messages that are not committed. Asks nobody."""
        ...

    def beginnings(self, partitions: Sequence[int]) -> Mapping[int, int]:
        """The first offset of each partition that is still there, or its end."""
        ...

    def offsets_at(self, sent_ms: int, partitions: Sequence[int]) -> Mapping[int, int]:
        """The first offset of each partition that was sent at that time or later, or its end."""
        ...

    def assign(self, positions: Mapping[int, int]) -> None:
        """Reads these partitions, from these offsets on."""
        ...

    def read(self, limit: int, wait_ms: int) -> Read:
        """Takes what has come of the partitions that are assigned: about `limit` messages at most.

        Waits `wait_ms` for the first of them. Messages of transactions that are not committed do
        not come. Raises `OffsetsLost`.
        """
        ...

    def tell(self, positions: Mapping[int, int]) -> None:
        """Lets tools that watch consumers see how far this one is. Nothing else reads it, and
        nothing happens when it fails."""
        ...

    def close(self) -> None: ...


class OffsetsLost(Exception):
    """The offset from which a partition is to be read is not there (any more)."""

    def __init__(self, partition: int, offset: int) -> None:
        super().__init__(f"the partition {partition} has no offset {offset}")
        self.partition = partition
        self.offset = offset


class Upstream(Protocol):
    """The topic of a source, over connections that come and go."""

    def topic(self) -> Topic:
        """The topic, over the connection as it is now: a new one once that was altered.

        Raises SLACKWATER_SOURCE_UNREACHABLE, SLACKWATER_CONNECTOR_MISSING, and what the connection
        and its secrets raise.
        """
        ...

    def forget(self) -> None:
        """The topic that was given is of no use any more."""
        ...
