"""Topics as the demo writes and reads them, through confluent-kafka."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slackwater.adapter.external.complaints import QUIET
from slackwater.adapter.external.libraries import confluent_kafka

NUMBERS = ("month", "day", "dep_time", "dep_delay", "distance")
WAIT_S = 30.0

Row = Mapping[str, Any]


class NotAcknowledgedError(Exception):
    """The broker has not acknowledged what was sent."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of a broker. `library` is confluent_kafka."""

    library: Any
    address: str
    producer: Any

    @classmethod
    def of(cls, address: str) -> Topics:
        """Raises SLACKWATER_CONNECTOR_MISSING."""
        library = confluent_kafka()
        sent_once = {"enable.idempotence": True, "linger.ms": 5}
        producer = library.Producer({"bootstrap.servers": address, **sent_once}, logger=QUIET)
        return cls(library, address, producer)

    def answers(self) -> bool:
        """Whether the broker answers within a second."""
        try:
            return bool(self._admin().list_topics(timeout=1).brokers)
        except self.library.KafkaException:
            return False

    def make(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        admin = self._admin()
        wanted = self.library.admin.NewTopic(name, partitions, 1, config=dict(settings))
        admin.create_topics([wanted])[name].result(WAIT_S)

    def send(self, topic: str, rows: Sequence[tuple[str, Row]]) -> None:
        """Sends each row as JSON under its key, and returns when all of them are acknowledged.

        Raises NotAcknowledgedError.
        """
        for key, row in rows:
            while True:
                try:
                    self.producer.produce(topic, json.dumps(row), key)
                    break
                except BufferError:
                    self.producer.poll(0.1)
        if left := self.producer.flush(WAIT_S):
            raise NotAcknowledgedError(f"{left} messages of {topic} are not acknowledged")

    def last_by_key(
        self, topic: str, is_enough: Callable[[Mapping[str, Row]], bool], most_s: float
    ) -> dict[str, Row]:
        """The last value of each key, read from the begin until it is enough or time is up.

        Messages of transactions that are not committed do not count.
        """
        consumer = self.library.Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "slackwater-demo",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            },
            logger=QUIET,
        )
        found: dict[str, Row] = {}
        until = time.monotonic() + most_s
        try:
            partitions = consumer.list_topics(topic, WAIT_S).topics[topic].partitions
            place = self.library.TopicPartition
            consumer.assign([place(topic, each, 0) for each in partitions])
            while not is_enough(found) and time.monotonic() < until:
                for message in consumer.consume(1000, 0.2):
                    if message.error() is None:
                        _take(found, message.key().decode(), message.value())
        finally:
            consumer.close()
        return found

    def _admin(self) -> Any:
        return self.library.admin.AdminClient({"bootstrap.servers": self.address}, logger=QUIET)


def flights_of(path: Path) -> list[tuple[str, Row]]:
    """The flights of a day's file as messages: keys, and the fields that the demo asks about."""
    with open(path, encoding="utf-8", newline="") as file:
        return [
            (
                f"{row['carrier']}{row['flight']}",
                {"carrier": row["carrier"], **{name: _number(row[name]) for name in NUMBERS}},
            )
            for row in csv.DictReader(file)
        ]


def airlines_of(path: Path) -> list[tuple[str, Row]]:
    """The airlines of the reference data as messages: the carrier is the key."""
    with open(path, encoding="utf-8", newline="") as file:
        return [(row["carrier"], {"name": row["name"]}) for row in csv.DictReader(file)]


def _number(text: str) -> int | None:
    return None if text == "NA" else int(text)


def _take(found: dict[str, Row], key: str, value: bytes | None) -> None:
    if value is None:
        found.pop(key, None)
    else:
        found[key] = json.loads(value)
