"""A Kafka cluster below the seam of sinks: transactions, fencing, and whatever may go wrong.

Each call of a producer may crash before or after it has done something, lose its answer, or leave
a commit on its way, which is done when a later producer of the same transactional id begins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from slackwater.repr.errors import user_error
from slackwater.storage.kafka.sink import ProducerFenced
from slackwater.storage.kafka.sink_messages import Outgoing


class Crash(Exception):
    """The process of the sink ends here."""


@dataclass
class Cluster:
    """What is committed: pairs of messages and records. `fate` decides what befalls each call."""

    fate: Callable[[str], str] = lambda call: "done"
    messages: list[tuple[bytes | None, bytes | None, int]] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    transactions: list[int] = field(default_factory=list)
    epoch: int = 0
    on_its_way: tuple[list, bytes] | None = None

    def producer(self) -> Producer:
        return Producer(self)

    def apply(self, sent, record):
        self.messages += sent
        self.records.append(record)
        self.transactions.append(len(sent))


@dataclass
class Producer:
    """See `SinkProducer`."""

    cluster: Cluster
    epoch: int = 0
    sent: list | None = None
    is_broken: bool = False

    def fence(self) -> None:
        def act():
            self.cluster.epoch += 1
            self.epoch = self.cluster.epoch
            if self.cluster.on_its_way is not None:
                self.cluster.apply(*self.cluster.on_its_way)
                self.cluster.on_its_way = None

        self._do("fence", act)

    def progress(self) -> bytes | None:
        found = []
        self._do("progress", lambda: found.append((self.cluster.records or [None])[-1]))
        return found[0]

    def begin(self) -> None:
        assert self.sent is None, "a transaction in a transaction"

        def act():
            self.sent = []

        self._do("begin", act)

    def send(self, messages: Outgoing) -> None:
        assert self.sent is not None, "no transaction"
        times = [int(dict(each)["slackwater-timestamp"]) for each in messages.headers]
        found = zip(messages.keys, messages.values, times, strict=True)
        self._do("send", lambda: self.sent.extend(found))

    def commit(self, progress: bytes) -> None:
        assert self.sent is not None, "no transaction"
        cluster, sent = self.cluster, self.sent
        if cluster.fate("delay") == "delay" and self.epoch == cluster.epoch and not self.is_broken:
            self.is_broken = True
            cluster.on_its_way = (sent, progress)
            raise unreachable()
        self._do("commit", lambda: cluster.apply(sent, progress))
        self.sent = None

    def close(self) -> None:
        self.is_broken = True

    def _do(self, call: str, act: Callable[[], object]) -> None:
        assert not self.is_broken, "it is of no use any more"
        fate = self.cluster.fate(call)
        if fate in ("crash before", "fail"):
            self.is_broken = True
            raise Crash if fate == "crash before" else unreachable()
        if call != "fence" and self.epoch != self.cluster.epoch:
            self.is_broken = True
            raise ProducerFenced
        act()
        if fate in ("crash after", "lose"):
            self.is_broken = True
            raise Crash if fate == "crash after" else unreachable()


def unreachable():
    return user_error("SLACKWATER_SINK_UNREACHABLE", objectName="s", place="t", reason="a fault")
