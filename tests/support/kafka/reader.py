"""What a reader of a topic sees that takes committed messages only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from tests.support.waiting import wait_until

SETTINGS = {
    "group.id": "tests",
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "log_level": 0,
}


@dataclass(frozen=True)
class Message:
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

    @property
    def time(self) -> int:
        return int(dict(self.headers)["slackwater-timestamp"])


class CommittedReader:
    """Follows all partitions that a topic had when it was opened, from the beginning."""

    def __init__(self, address: str, topic: str, partitions: int = 1) -> None:
        self.messages: list[Message] = []
        self._consumer = Consumer({**SETTINGS, "bootstrap.servers": address})
        self._consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])

    def read(self) -> list[Message]:
        """All messages up to now, in each partition in their order."""
        while found := self._consumer.consume(10_000, 0.2):
            self._take(found)
        return self.messages

    def read_first(self) -> None:
        """Returns as soon as there is a message, however many more there are."""
        wait_until(lambda: self._take(self._consumer.consume(1, 0.2)), what="the first message")

    def _take(self, found: list[Any]) -> list[Message]:
        for each in found:
            if each.error() is None:
                headers = each.headers() or []
                self.messages.append(Message(each.partition(), each.key(), each.value(), headers))
        return self.messages

    def wait(self, reached: Callable[[list[Message]], object], what: str) -> list[Message]:
        """Reads until that is so; all messages then."""

        def look() -> list[Message] | None:
            found = self.read()
            return found if reached(found) else None

        return wait_until(look, what=what)

    def close(self) -> None:
        self._consumer.close()
