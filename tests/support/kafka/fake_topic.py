"""A topic in memory, below the seam of `slackwater.storage.kafka.topic`, that can misbehave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slackwater.repr.errors import user_error
from slackwater.storage.kafka.topic import (
    Messages,
    OffsetsLost,
    Read,
    TopicIdentity,
    TopicState,
)


@dataclass(frozen=True)
class Sent:
    """A message in a partition."""

    offset: int
    key: bytes | None
    value: bytes | None
    sent_ms: int = 0
    headers: tuple = ()


@dataclass
class Partition:
    """The log of a partition: `first` is where retention has got to, `end` the next offset."""

    messages: list[Sent] = field(default_factory=list)
    first: int = 0
    end: int = 0


@dataclass
class FakeCluster:
    """A cluster with one topic. `fails`: so many of the next questions are not answered."""

    identity: TopicIdentity = field(default_factory=lambda: TopicIdentity("cluster", "topic"))
    partitions: list[Partition] = field(default_factory=lambda: [Partition()])
    fails: int = 0
    told: dict[int, int] = field(default_factory=dict)

    def send(self, partition, key, value, sent_ms=0, headers=()):
        log = self.partitions[partition]
        log.messages.append(Sent(log.end, key, value, sent_ms, headers))
        log.end += 1

    def mark(self, partition):
        """A transaction ends: its mark takes an offset."""
        self.partitions[partition].end += 1

    def retain_from(self, partition, offset):
        """Messages before the offset go."""
        log = self.partitions[partition]
        log.first = max(log.first, min(offset, log.end))
        log.messages = [each for each in log.messages if each.offset >= log.first]

    def answer(self):
        if self.fails:
            self.fails -= 1
            raise user_error(
                "SLACKWATER_SOURCE_UNREACHABLE",
                objectName="s",
                upstream="the topic t",
                connectionName="k",
                reason="no broker answers",
            )


class FakeTopic:
    """One client. `size` is the most that one read brings."""

    def __init__(self, cluster: FakeCluster, size: int) -> None:
        self._cluster = cluster
        self._size = size
        self._next: dict[int, int] = {}

    def state(self) -> TopicState:
        self._cluster.answer()
        return TopicState(self._cluster.identity, len(self._cluster.partitions))

    def topic_id(self) -> str:
        self._cluster.answer()
        return self._cluster.identity.topic

    def ends(self, partitions) -> Mapping[int, int]:
        self._cluster.answer()
        return {each: self._cluster.partitions[each].end for each in partitions}

    def said_ends(self, partitions) -> Mapping[int, int]:
        return {
            each: self._cluster.partitions[each].end for each in partitions if each in self._next
        }

    def beginnings(self, partitions) -> Mapping[int, int]:
        self._cluster.answer()
        return {each: self._cluster.partitions[each].first for each in partitions}

    def offsets_at(self, sent_ms, partitions) -> Mapping[int, int]:
        self._cluster.answer()
        found = {}
        for each in partitions:
            log = self._cluster.partitions[each]
            later = (message.offset for message in log.messages if message.sent_ms >= sent_ms)
            found[each] = next(later, log.end)
        return found

    def assign(self, positions) -> None:
        self._next = dict(positions)

    def read(self, limit, wait_ms) -> Read:
        self._cluster.answer()
        left = min(limit, self._size)
        taken, positions = [], {}
        for partition, start in self._next.items():
            log = self._cluster.partitions[partition]
            if start < log.first or start > log.end:
                raise OffsetsLost(partition, start)
            found = [each for each in log.messages if each.offset >= start]
            chosen, left = found[:left], left - len(found[:left])
            taken += [(partition, each) for each in chosen]
            at = log.end
            if len(chosen) < len(found):
                at = chosen[-1].offset + 1 if chosen else start
            if at > start:
                positions[partition] = self._next[partition] = at
        return Read(
            Messages(
                [partition for partition, _ in taken],
                [each.offset for _, each in taken],
                [each.sent_ms for _, each in taken],
                [each.key for _, each in taken],
                [each.value for _, each in taken],
                [each.headers for _, each in taken],
            ),
            positions,
        )

    def tell(self, positions) -> None:
        self._cluster.told = dict(positions)

    def close(self) -> None:
        """Nothing is open."""


class FakeUpstream:
    """The topic over a client that is made anew after each `forget`."""

    def __init__(self, cluster: FakeCluster, size: int = 1000) -> None:
        self._cluster = cluster
        self._size = size
        self._open: FakeTopic | None = None

    def topic(self) -> FakeTopic:
        if self._open is None:
            self._cluster.answer()
            self._open = FakeTopic(self._cluster, self._size)
        return self._open

    def forget(self) -> None:
        self._open = None
