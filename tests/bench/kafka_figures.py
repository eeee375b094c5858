"""How many messages of a topic become durable rows in a second, and how soon a view shows one."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from confluent_kafka import Producer
from tests.bench.figure import Figure
from tests.support.applications.application import Application, coordinators
from tests.support.kafka.broker import running_broker

MESSAGES = 1_000_000
WARM_UP = 20_000
KEYS = 1_000_000
ROUNDS = 60
COLUMNS = "(id BIGINT, customer STRING, amount DECIMAL(12, 2), at TIMESTAMP)"


def kafka(folder):
    """JSON appended and upserted, from a topic that is full; then one message after the other."""
    location = folder / "environment"
    with running_broker() as broker, Application(location, master="local[2]") as application:
        application.sql("USE slackwater.default")
        options = f"BROKER '{broker.address}', SECURITY PROTOCOL 'PLAINTEXT'"
        application.sql(f"CREATE CONNECTION k TO KAFKA ({options})")
        yield from _snapshots(application, broker)
        yield from _freshness(application, broker)


def _snapshots(application, broker):
    warm, full = broker.new_topic(), broker.new_topic()
    _fill(broker, warm, WARM_UP)
    _fill(broker, full, MESSAGES)
    for name, envelope, target in (
        ("kafka_json", "NONE", 1 / 25_000),
        ("kafka_upsert", "UPSERT", 1 / 15_000),
    ):
        for topic in (warm, full):
            source = f"s_{name}_{topic[:6]}"
            used_s, began = _used_s(application), time.perf_counter()
            application.sql(
                f"CREATE SOURCE {source} {COLUMNS} FROM KAFKA CONNECTION k (TOPIC '{topic}') "
                f"KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE {envelope}",
                timeout_s=600,
            )
            took_s = time.perf_counter() - began
            used_s = _used_s(application) - used_s
        count = application.value(f"SELECT count(*) FROM {source}")
        assert count == MESSAGES, count
        yield Figure(
            name,
            f"processor time of the coordinator for 1000 messages ({envelope}, JSON of four "
            f"columns, {MESSAGES} messages in {took_s:.0f} s)",
            "ms",
            target * 1_000_000,
            used_s * 1_000_000 / MESSAGES,
        )


def _freshness(application, broker):
    topic = broker.new_topic()
    application.sql(
        f"CREATE SOURCE fresh {COLUMNS} FROM KAFKA CONNECTION k (TOPIC '{topic}') "
        "KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT WITH (TIMESTAMP INTERVAL '100 ms')"
    )
    application.sql("CREATE MATERIALIZED VIEW seen AS SELECT count(*) AS n FROM fresh")
    producer, times = broker.producer(), []
    for number in range(ROUNDS):
        _send(producer, topic, number)
        assert producer.flush(60) == 0
        began = time.perf_counter()
        while application.value("SELECT n FROM seen") <= number:
            pass
        times.append((time.perf_counter() - began) * 1000)
    yield Figure(
        "kafka_to_view",
        "acknowledged by the broker until a view shows it, p50",
        "ms",
        500,
        statistics.median(times[10:]),
    )


def _fill(broker, topic, count):
    producer = broker.producer(linger_ms="20", compression_type="lz4")
    for number in range(count):
        _send(producer, topic, number)
        if number % 10_000 == 0:
            producer.poll(0)
            producer.flush()
    assert producer.flush(60) == 0


def _send(producer: Producer, topic, number):
    value = (
        f'{{"id": {number}, "customer": "customer {number % 1000}", "amount": {number % 10_000}.25,'
        f' "at": "2026-01-01T{number % 24:02d}:00:00Z"}}'
    )
    producer.produce(topic, key=str(number % KEYS), value=value)


def _used_s(application) -> float:
    """The processor time of the coordinator so far."""
    return sum(map(_process_s, coordinators(application.location)))


def _process_s(pid) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields: Sequence[str] = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
