"""Transactions of topics by librdkafka. The seam is `slackwater.storage.kafka.sink`.

A producer belongs to one thread. What all sinks of a connection share, a client that asks brokers
and the reader of the progress topic, is `KafkaCluster`: with many sinks the topic is read once.

Source: docs/decisions 0070; librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slackwater.adapter.external.complaints import ANSWER_S, LOOK_S, QUIET, Complaints
from slackwater.adapter.external.libraries import confluent_kafka
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.storage.kafka.access import KafkaAccess
from slackwater.storage.kafka.sink import ProducerFenced
from slackwater.storage.kafka.sink_messages import KafkaSinkConfig, Outgoing
from slackwater.storage.sink_errors import progress_lost, unreachable

COMMIT_S = 30.0
"""The most that a commit may take, with the messages that wait to be sent."""
BEGINNING = 64
"""So many sinks of a connection fence at once: brokers would not answer many more in time."""
WAIT_S = 1.0
"""A sink that waits for its turn looks so often whether it is to stop."""
_FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
_GONE = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"})
_PRODUCE: Mapping[str, str | int | bool] = {
    "enable.idempotence": True,
    "transaction.timeout.ms": 60_000,
    "message.timeout.ms": 50_000,
    # As Java's producers do: librdkafka's own would part what is joined by partition.
    "partitioner": "murmur2_random",
    "linger.ms": 5,
    "queue.buffering.max.kbytes": 65536,
    # Brokers and topics have their own limit, which counts.
    "message.max.bytes": 100_000_000,
    "log.connection.close": False,
    "socket.keepalive.enable": True,
}
_READ: Mapping[str, str | int | bool] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 20,
    "allow.auto.create.topics": False,
    "log.connection.close": False,
}


@dataclass(frozen=True, slots=True)
class ProgressTopic:
    """The name of a progress topic, and how many copies it has when it is made."""

    name: str
    replication_factor: int | None = None


@dataclass(frozen=True, slots=True)
class SinkNames:
    """A sink as messages and brokers know it. `key` is that of its records."""

    sink: str
    connection: str
    key: bytes
    transactional_id: str


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic as brokers describe it."""

    topic_id: str
    partitions: int


@dataclass(slots=True)
class _Records:
    """The last record of each key of a progress topic, up to `position`."""

    topic_id: str
    consumer: Any
    position: int = 0
    last: dict[bytes, bytes | None] = field(default_factory=dict)


class _Count:
    """The number of those who have asked so far. Thread-safe."""

    def __init__(self) -> None:
        self.number = 0
        self._lock = threading.Lock()

    def one_more(self) -> int:
        with self._lock:
            self.number += 1
            return self.number


class KafkaCluster:
    """The brokers of a connection, for all sinks that write by it. Thread-safe."""

    def __init__(self, access: KafkaAccess, progress: ProgressTopic, group: str) -> None:
        """Raises SLACKWATER_CONNECTOR_MISSING."""
        self.library = confluent_kafka()
        self.access = access
        self.progress = progress
        self._group = group
        self._complaints = Complaints(access)
        settings = {**dict(access.settings), "error_cb": self._complaints.heard}
        self._admin = self.library.admin.AdminClient(settings, logger=QUIET)
        self._records: _Records | None = None
        self._asked, self._answered = _Count(), 0
        self._reading = threading.Lock()
        self._beginning = threading.BoundedSemaphore(BEGINNING)

    def close(self) -> None:
        """Ends the reader of the progress topic."""
        with self._reading:
            self._forget()

    @contextlib.contextmanager
    def turn(self, names: SinkNames, is_stopped: Callable[[], bool]) -> Iterator[None]:
        """The turn of a sink to fence. Raises SLACKWATER_SINK_UNREACHABLE if it is to stop."""
        while not self._beginning.acquire(timeout=WAIT_S):
            if is_stopped():
                raise self.unreachable(names, self.progress.name, "the sink is to stop")
        try:
            yield
        finally:
            self._beginning.release()

    def ensure_topics(self, config: KafkaSinkConfig, names: SinkNames) -> list[str]:
        """Makes the topics that are not there; what is to be told of those that are.

        Raises SLACKWATER_SINK_UNREACHABLE and SLACKWATER_SINK_PROGRESS_LOST.
        """
        kept = self.progress
        self._make(kept.name, 1, kept.replication_factor, {"cleanup.policy": "compact"}, names)
        self.check_progress(names)
        made = self._make(
            config.topic,
            config.partitions,
            config.replication_factor,
            dict(config.topic_config),
            names,
        )
        return [] if made else self._differences(config, names)

    def check_progress(self, names: SinkNames) -> FoundTopic:
        """The progress topic, which has to keep the last record of each sink.

        Raises SLACKWATER_SINK_PROGRESS_LOST.
        """
        name = self.progress.name
        found = self.found(name, names)
        if found is None:
            raise self._lost(names, "it is gone")
        if found.partitions != 1:
            raise self._lost(names, f"it has {found.partitions} partitions, and needs one")
        policy = self._settings(name, names).get("cleanup.policy")
        if policy != "compact":
            raise self._lost(names, f"its cleanup.policy is {policy}, and has to be compact")
        return found

    def found(self, topic: str, names: SinkNames) -> FoundTopic | None:
        """The topic; None: there is none. Raises SLACKWATER_SINK_UNREACHABLE."""
        wanted = self.library.TopicCollection([topic])
        try:
            asked = self._admin.describe_topics(wanted, request_timeout=ANSWER_S)[topic]
            found = self._answer(asked, names, topic)
        except self.library.KafkaException as error:
            if error.args[0].name() in _GONE:
                return None
            raise self._failed(error, names, topic) from None
        return FoundTopic(str(found.topic_id), len(found.partitions))

    def last_record(self, names: SinkNames) -> bytes | None:
        """The last committed record of the sink's key, of all that is in the progress topic now.

        One look is for all sinks that have asked before it. Raises SLACKWATER_SINK_UNREACHABLE and
        SLACKWATER_SINK_PROGRESS_LOST.
        """
        asked = self._asked.one_more()
        with self._reading:
            if self._records is None or self._answered < asked:
                answered = self._asked.number
                self._records = self._looked(names)
                self._answered = answered
            return self._records.last.get(names.key)

    def _looked(self, names: SinkNames) -> _Records:
        """All records that are in the progress topic now."""
        topic = self.check_progress(names)
        end = self._end(names)
        records = self._records
        if records is not None and (records.topic_id != topic.topic_id or end < records.position):
            self._forget()
        records = self._records = self._records or self._begun(topic.topic_id, names)
        place = [self.library.TopicPartition(self.progress.name, 0)]
        try:
            records.consumer.resume(place)
            self._read(records, end, names)
            # Else it would ask the broker fifty times a second for as long as the leader lives.
            records.consumer.pause(place)
        except BaseException:
            self._forget()
            raise
        return records

    def _begun(self, topic_id: str, names: SinkNames) -> _Records:
        settings = {**dict(self.access.settings), "error_cb": self._complaints.heard}
        consumer = self.library.Consumer(
            {**settings, **_READ, "group.id": self._group}, logger=QUIET
        )
        begin = self._offset(self.library.admin.OffsetSpec.earliest(), names)
        consumer.assign([self.library.TopicPartition(self.progress.name, 0, begin)])
        return _Records(topic_id, consumer, begin)

    def _read(self, records: _Records, end: int, names: SinkNames) -> None:
        """Reads up to the offset `end`. What is before it may belong to open transactions of other
        sinks, for which readers wait."""
        deadline = time.monotonic() + ANSWER_S
        while records.position < end:
            for message in records.consumer.consume(1000, 0.1):
                error = message.error()
                if error is None:
                    records.last[message.key()] = message.value()
                    records.position = message.offset() + 1
                elif error.name() == "_PARTITION_EOF":
                    records.position = max(records.position, message.offset())
                elif error.fatal() or not error.retriable():
                    raise self.unreachable(names, self.progress.name, error.str())
            if records.position < end and time.monotonic() > deadline:
                reason = self._complaints.said or (
                    f"it is read up to {records.position}, and has messages up to {end} that are "
                    "not committed yet"
                )
                raise self.unreachable(names, self.progress.name, reason)

    def _forget(self) -> None:
        if self._records is not None:
            self._records.consumer.close()
            self._records = None

    def _end(self, names: SinkNames) -> int:
        """The high watermark of the progress topic, whatever is committed."""
        return self._offset(self.library.admin.OffsetSpec.latest(), names)

    def _offset(self, spec: Any, names: SinkNames) -> int:
        topic = self.progress.name
        place = self.library.TopicPartition(topic, 0)
        try:
            asked = self._admin.list_offsets({place: spec}, request_timeout=ANSWER_S)
            return int(self._answer(asked[place], names, topic).offset)
        except self.library.KafkaException as error:
            raise self._failed(error, names, topic) from None

    def _make(
        self,
        topic: str,
        partitions: int | None,
        replication: int | None,
        config: Mapping[str, str],
        names: SinkNames,
    ) -> bool:
        """Makes the topic. True: it was made; False: it is there already. Brokers know it then."""
        wanted = self.library.admin.NewTopic(
            topic, partitions or -1, replication or -1, config=dict(config)
        )
        try:
            asked = self._admin.create_topics([wanted], request_timeout=ANSWER_S)
            self._answer(asked[topic], names, topic)
        except self.library.KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise self._failed(error, names, topic) from None
            is_made = False
        else:
            is_made = True
        self._await(topic, names)
        return is_made

    def _await(self, topic: str, names: SinkNames) -> None:
        """Returns when brokers know the topic: the controller, which makes it, is ahead of them."""
        deadline = time.monotonic() + ANSWER_S
        while self.found(topic, names) is None:
            if time.monotonic() > deadline:
                raise self.unreachable(names, topic, "the brokers do not know the topic yet")
            time.sleep(LOOK_S)

    def _settings(self, topic: str, names: SinkNames) -> Mapping[str, str]:
        resource = self.library.admin.ConfigResource
        wanted = resource(self.library.admin.ResourceType.TOPIC, topic)
        try:
            asked = self._admin.describe_configs([wanted], request_timeout=ANSWER_S)
            found = self._answer(next(iter(asked.values())), names, topic)
        except self.library.KafkaException as error:
            raise self._failed(error, names, topic) from None
        return {name: entry.value for name, entry in found.items()}

    def _differences(self, config: KafkaSinkConfig, names: SinkNames) -> list[str]:
        differences = []
        found = self.found(config.topic, names)
        if found is not None and config.partitions not in (None, found.partitions):
            differences.append(f"it has {found.partitions} partitions")
        if config.topic_config:
            has = self._settings(config.topic, names)
            differences += [
                f"its {name} is {has.get(name)}"
                for name, wanted in config.topic_config
                if has.get(name) != wanted
            ]
        if not differences:
            return []
        return [f"The topic {config.topic} is used as it is: {', '.join(differences)}."]

    def _answer(self, future: Any, names: SinkNames, topic: str) -> Any:
        """The answer of a broker. Raises SLACKWATER_SINK_UNREACHABLE."""
        return self._complaints.answer(
            self._admin, future, lambda reason: self.unreachable(names, topic, reason)
        )

    def _failed(self, error: Any, names: SinkNames, topic: str) -> SlackwaterError:
        return self.unreachable(names, topic, self._complaints.said or error.args[0].str())

    def unreachable(self, names: SinkNames, topic: str, reason: str) -> SlackwaterError:
        """SLACKWATER_SINK_UNREACHABLE, without values of secrets."""
        return unreachable(
            names.sink, f"the topic {topic}", self.access.scrubbed(reason).removesuffix(".")
        )

    def _lost(self, names: SinkNames, reason: str) -> SlackwaterError:
        return progress_lost(names.sink, f"the progress topic {self.progress.name}", reason)


class KafkaProducer:
    """The producer of one sink, as `SinkProducer`."""

    def __init__(
        self,
        cluster: KafkaCluster,
        config: KafkaSinkConfig,
        names: SinkNames,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Raises SLACKWATER_SINK_UNREACHABLE where there are too many clients.

        A sink that `is_stopped` waits for its turn no longer.
        """
        self._cluster = cluster
        self._library = cluster.library
        self._config = config
        self._names = names
        self._is_stopped = is_stopped
        self._complaints = Complaints(cluster.access)
        self._is_open = False
        self._partitions = 1
        settings = {
            **dict(cluster.access.settings),
            **_PRODUCE,
            "error_cb": self._complaints.heard,
            "transactional.id": names.transactional_id,
            "compression.type": config.compression,
        }
        try:
            self._producer = self._library.Producer(settings, logger=QUIET)
        except RuntimeError:
            # Each client takes one of the keys for data of threads that a process has.
            reason = "a leader cannot have more clients of Kafka than it has, about 1000"
            raise self._unreachable(reason) from None

    def fence(self) -> None:
        # Not while progress is read: that may wait for a transaction which a fence ends.
        with self._cluster.turn(self._names, self._is_stopped):
            self._until_done(self._producer.init_transactions, ANSWER_S)

    def progress(self) -> bytes | None:
        found = self._cluster.last_record(self._names)
        topic = self._cluster.found(self._config.topic, self._names)
        if topic is None:
            raise user_error(
                "SLACKWATER_UNKNOWN_TOPIC",
                topic=self._config.topic,
                connectionName=self._names.connection,
            )
        self._partitions = topic.partitions
        return found

    def begin(self) -> None:
        try:
            self._producer.begin_transaction()
        except self._library.KafkaException as error:
            raise self._failed(error) from None
        self._is_open = True

    def send(self, messages: Outgoing) -> None:
        produce, topic = self._producer.produce, self._config.topic
        places = self._placed(messages)
        columns = zip(messages.values, messages.keys, places, messages.headers, strict=True)
        try:
            for value, key, place, headers in columns:
                try:
                    produce(topic, value, key, place, headers=headers)
                except BufferError:
                    self._await_room()
                    produce(topic, value, key, place, headers=headers)
        except self._library.KafkaException as error:
            raise self._failed(error) from None
        self._poll(0)

    def commit(self, progress: bytes) -> None:
        topic = self._cluster.progress.name
        try:
            self._producer.produce(topic, progress, self._names.key, 0)
        except (self._library.KafkaException, BufferError) as error:
            raise self._failed(error) from None
        self._until_done(self._producer.commit_transaction, COMMIT_S)
        self._is_open = False

    def close(self) -> None:
        producer = self._producer
        with contextlib.suppress(self._library.KafkaException):
            producer.purge(blocking=False)
            if self._is_open and not self._complaints.is_down:
                producer.abort_transaction(1)
            producer.poll(0)

    def _placed(self, messages: Outgoing) -> Sequence[int]:
        """The partition of each message; -1: by the hash of its key."""
        if messages.places is None:
            return [-1] * len(messages)
        return [each % self._partitions for each in messages.places]

    def _await_room(self) -> None:
        """Returns when there may be room in the queue of messages that are sent."""
        began = time.monotonic()
        while self._poll(0.1) == 0:
            if time.monotonic() - began > COMMIT_S or self._complaints.is_lost(began):
                raise self._unreachable("no broker takes messages")

    def _poll(self, most_s: float) -> int:
        """The events that librdkafka had. It raises here what no call has told of and is final."""
        try:
            return int(self._producer.poll(most_s))
        except self._library.KafkaException as error:
            raise self._failed(error) from None

    def _until_done(self, act: Callable[[float], None], most_s: float) -> None:
        """Goes on with what librdkafka does in the background until it is done."""
        began = time.monotonic()
        while True:
            try:
                act(1.0)
            except self._library.KafkaException as error:
                is_late = time.monotonic() - began > most_s or self._complaints.is_lost(began)
                self._poll(0)
                if not error.args[0].retriable() or is_late:
                    raise self._failed(error) from None
            else:
                self._complaints.cleared()
                return

    def _failed(self, error: Any) -> Exception:
        found = error.args[0]
        if isinstance(found, str):
            return self._unreachable(found)
        if found.name() in _FENCED:
            return ProducerFenced()
        return self._unreachable(found.str())

    def _unreachable(self, reason: str) -> SlackwaterError:
        said = self._complaints.said or reason
        return self._cluster.unreachable(self._names, self._config.topic, said)
