"""Topics read by librdkafka, through confluent-kafka. The seam is `slackwater.storage.kafka.topic`.

A client belongs to one thread at a time. It assigns partitions itself, so no group decides what it
reads; its group only shows tools how far it is. librdkafka connects in threads of its own, and
tells by `error_cb`, when it is polled, why it does not succeed.

Source: docs/decisions 0069; librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slackwater.adapter.external.complaints import ANSWER_S, QUIET, Complaints
from slackwater.adapter.external.libraries import confluent_kafka
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.storage.kafka.access import KafkaAccess
from slackwater.storage.kafka.topic import (
    Messages,
    OffsetsLost,
    Read,
    TopicIdentity,
    TopicState,
)

_FETCH: Mapping[str, str | int | bool] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 100,
    "queued.max.messages.kbytes": 65536,
    "allow.auto.create.topics": False,
    # A connection that nobody needs for a while is closed by brokers: that is no error.
    "log.connection.close": False,
    "socket.keepalive.enable": True,
}


@dataclass(frozen=True, slots=True)
class Named:
    """A topic as its source names it, for messages. `connection` is the name of its connection."""

    source: str
    connection: str
    topic: str


class KafkaTopic:
    """One topic over one client. See `Topic`."""

    def __init__(self, access: KafkaAccess, named: Named, group: str) -> None:
        self._library = confluent_kafka()
        self._named = named
        self._complaints = Complaints(access)
        settings = {**dict(access.settings), "error_cb": self._complaints.heard}
        self._admin = self._library.admin.AdminClient(settings, logger=QUIET)
        self._consumer = self._library.Consumer(
            {**settings, **_FETCH, "group.id": group}, logger=QUIET
        )

    def state(self) -> TopicState:
        found = self._described()
        try:
            cluster = self._answer(self._admin.describe_cluster(request_timeout=ANSWER_S))
        except self._library.KafkaException as error:
            raise self._failed(error) from None
        identity = TopicIdentity(str(cluster.cluster_id), str(found.topic_id))
        return TopicState(identity, len(found.partitions))

    def topic_id(self) -> str:
        return str(self._described().topic_id)

    def ends(self, partitions: Sequence[int]) -> Mapping[int, int]:
        return self._offsets(partitions, self._library.admin.OffsetSpec.latest())

    def said_ends(self, partitions: Sequence[int]) -> Mapping[int, int]:
        name, place = self._named.topic, self._library.TopicPartition
        found = {}
        for each in partitions:
            _, end = self._consumer.get_watermark_offsets(place(name, each), cached=True)
            if end >= 0:
                found[each] = end
        return found

    def beginnings(self, partitions: Sequence[int]) -> Mapping[int, int]:
        return self._offsets(partitions, self._library.admin.OffsetSpec.earliest())

    def offsets_at(self, sent_ms: int, partitions: Sequence[int]) -> Mapping[int, int]:
        spec = self._library.admin.OffsetSpec.for_timestamp(sent_ms)
        found = self._offsets(partitions, spec)
        none = [partition for partition, offset in found.items() if offset < 0]
        return {**found, **self.ends(none)} if none else found

    def assign(self, positions: Mapping[int, int]) -> None:
        name, place = self._named.topic, self._library.TopicPartition
        self._consumer.assign([place(name, each, at) for each, at in positions.items()])

    def read(self, limit: int, wait_ms: int) -> Read:
        found = self._consumer.consume(limit, 0)
        if not found and wait_ms:
            first = self._consumer.poll(wait_ms / 1000)
            found = [] if first is None else [first, *self._consumer.consume(limit - 1, 0)]
        if not found:
            if self._complaints.is_down:
                raise self._unreachable(self._complaints.said or "no broker answers")
            return Read(Messages(), {})
        self._complaints.cleared()
        return self._read(found)

    def tell(self, positions: Mapping[int, int]) -> None:
        name, place = self._named.topic, self._library.TopicPartition
        offsets = [place(name, each, at) for each, at in positions.items()]
        if offsets:
            try:
                self._consumer.commit(offsets=offsets, asynchronous=True)
            except self._library.KafkaException:
                return  # Tools see an earlier place until the next step.

    def close(self) -> None:
        self._consumer.close()

    def _read(self, found: Sequence[Any]) -> Read:
        positions: dict[int, int] = {}
        messages = []
        for each in found:
            error = each.error()
            if error is None:
                messages.append(each)
            elif error.name() == "_PARTITION_EOF":
                positions[each.partition()] = each.offset()
            else:
                self._refuse(each, error)
        partitions = [each.partition() for each in messages]
        offsets = [each.offset() for each in messages]
        for partition, offset in zip(partitions, offsets, strict=True):
            if positions.get(partition, 0) <= offset:
                positions[partition] = offset + 1
        none = self._library.TIMESTAMP_NOT_AVAILABLE
        times = [each.timestamp() for each in messages]
        return Read(
            Messages(
                partitions,
                offsets,
                [None if kind == none else sent_ms for kind, sent_ms in times],
                [each.key() for each in messages],
                [each.value() for each in messages],
                [_headers(each) for each in messages],
            ),
            positions,
        )

    def _refuse(self, found: Any, error: Any) -> None:
        """Raises for what is no message, unless librdkafka goes on by itself."""
        lost = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION")
        if error.name() in lost:
            raise OffsetsLost(found.partition(), found.offset())
        if error.fatal() or not error.retriable():
            raise self._unreachable(error.str())

    def _described(self) -> Any:
        name = self._named.topic
        wanted = self._library.TopicCollection([name])
        try:
            asked = self._admin.describe_topics(wanted, request_timeout=ANSWER_S)[name]
            return self._answer(asked)
        except self._library.KafkaException as error:
            raise self._failed(error) from None

    def _offsets(self, partitions: Sequence[int], spec: Any) -> dict[int, int]:
        if not partitions:
            return {}
        place, isolation = self._library.TopicPartition, self._library.IsolationLevel
        wanted = {place(self._named.topic, each): spec for each in partitions}
        try:
            asked = self._admin.list_offsets(
                wanted,
                isolation_level=isolation.READ_COMMITTED,
                request_timeout=ANSWER_S,
            )
            return {each.partition: self._answer(found).offset for each, found in asked.items()}
        except self._library.KafkaException as error:
            raise self._failed(error) from None

    def _answer(self, future: Any) -> Any:
        return self._complaints.answer(self._admin, future, self._unreachable)

    def _failed(self, error: Any) -> SlackwaterError:
        found = error.args[0]
        if found.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
            return user_error(
                "SLACKWATER_UNKNOWN_TOPIC",
                topic=self._named.topic,
                connectionName=self._named.connection,
            )
        return self._unreachable(self._complaints.said or found.str())

    def _unreachable(self, reason: str) -> SlackwaterError:
        return user_error(
            "SLACKWATER_SOURCE_UNREACHABLE",
            objectName=self._named.source,
            upstream=f"the topic {self._named.topic}",
            connectionName=self._named.connection,
            reason=self._complaints.access.scrubbed(reason).removesuffix("."),
        )


def _headers(message: Any) -> Sequence[tuple[str, bytes | None]]:
    found: Sequence[tuple[str, bytes | None]] | None = message.headers()
    return found or ()


@dataclass(slots=True)
class KafkaUpstream:
    """The topic over the connection as it is now. See `Upstream`.

    `version` says without asking for secrets whether the connection was altered.
    """

    named: Named
    group: str
    access: Callable[[], KafkaAccess]
    version: Callable[[], str]
    _open: KafkaTopic | None = field(default=None, init=False)
    _opened: str = field(default="", init=False)

    def topic(self) -> KafkaTopic:
        if self._open is not None and self._opened != self.version():
            self.forget()
        if self._open is None:
            access = self.access()
            self._open, self._opened = KafkaTopic(access, self.named, self.group), access.version
        return self._open

    def forget(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
