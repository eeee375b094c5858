"""How many messages of a topic become durable rows in a second, how soon a view shows one, and how
soon a source that keeps rows by their keys goes on after a restart."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import Producer
from tests.bench.figure import Figure
from tests.support.applications.application import Application, coordinators, kill, only_coordinator
from tests.support.kafka.broker import running_broker

MESSAGES = 1_000_000
WARM_UP = 20_000
KEYS = 1_000_000
ROUNDS = 60
COLUMNS = "(id BIGINT, customer STRING, amount DECIMAL(12, 2), at TIMESTAMP)"


def kafka(folder):
    """JSON appended and upserted, from a topic that is full; then one message after the other; then
    a message that waits for another leader."""
    location = folder / "environment"
    with running_broker() as broker, Application(location, master="local[2]") as application:
        full = broker.new_topic()
        application.sql("USE slackwater.default")
        options = f"BROKER '{broker.address}', SECURITY PROTOCOL 'PLAINTEXT'"
        application.sql(f"CREATE CONNECTION k TO KAFKA ({options})")
        application.sql("SET slackwater.statement_timeout = '10min'")
        yield from _snapshots(application, broker, full)
        yield from _freshness(application, broker)
        yield restarted_topic(application, broker, full)


def restarted_topic(application, broker, topic):
    producer = broker.producer()

    def change():
        _send(producer, topic, KEYS)
        assert producer.flush(60) == 0

    what = f"a source that upserts over {KEYS} keys, until it has a new message"
    source = f"s_kafka_upsert_{topic[:6]}"
    return restarted(application, Restart("kafka_restart", what, source, f"id = {KEYS}"), change)


@dataclass(frozen=True)
class Restart:
    """A figure about a source that comes to have a row: `row` is what is true of it, in `relation`
    or in the source."""

    name: str
    what: str
    source: str
    row: str
    relation: str | None = None


def restarted(application, asked, change):
    """How long the source takes from where another leader begins with it until it has a row that
    `change` makes while nobody leads."""
    row = f"SELECT count(*) FROM {asked.relation or asked.source} WHERE {asked.row}"
    assert application.value(row) == 0
    kill(only_coordinator(application.location))
    change()
    while application.value(row) == 0:
        pass
    seen_s, taken_s = time.time(), used_s(application)
    began_ms = application.value(
        "SELECT max(unix_millis(occurred_at)) FROM mz_internal.mz_source_status_history h"
        " JOIN mz_catalog.mz_sources s ON s.id = h.source_id"
        f" WHERE s.name = '{asked.source}' AND h.status = 'starting'"
    )
    what = f"another leader begins with {asked.what} ({taken_s:.1f} s of a processor in all)"
    return Figure(asked.name, what, "s", 10, seen_s - began_ms / 1000)


def _snapshots(application, broker, full):
    warm = broker.new_topic()
    _fill(broker, warm, WARM_UP)
    _fill(broker, full, MESSAGES)
    for name, envelope, target in (
        ("kafka_json", "NONE", 1 / 25_000),
        ("kafka_upsert", "UPSERT", 1 / 15_000),
    ):
        for topic in (warm, full):
            source = f"s_{name}_{topic[:6]}"
            before_s, began = used_s(application), time.perf_counter()
            application.sql(
                f"CREATE SOURCE {source} {COLUMNS} FROM KAFKA CONNECTION k (TOPIC '{topic}') "
                f"KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE {envelope}",
                timeout_s=600,
            )
            took_s = time.perf_counter() - began
            taken_s = used_s(application) - before_s
        count = application.value(f"SELECT count(*) FROM {source}")
        assert count == MESSAGES, count
        yield Figure(
            name,
            f"processor time of the coordinator for 1000 messages ({envelope}, JSON of four "
            f"columns, {MESSAGES} messages in {took_s:.0f} s)",
            "ms",
            target * 1_000_000,
            taken_s * 1_000_000 / MESSAGES,
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


def used_s(application) -> float:
    """The processor time of the coordinator so far."""
    return sum(map(_process_s, coordinators(application.location)))


def _process_s(pid) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields: Sequence[str] = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
