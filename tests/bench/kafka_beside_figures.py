"""The same topic into the same aggregation, into another topic: here, by Flink SQL, and by Spark
Structured Streaming. Each writes changed totals, and one client reads all of them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from tests.bench.figure import Figure
from tests.support.applications.application import ROOT, Application
from tests.support.kafka.broker import running_broker

from slackwater.demo.broker import java, retrieve

HERE = Path(__file__).parent
MESSAGES, WARM_UP, ROUNDS, FIRST = 500_000, 50_000, 40, 10
CUSTOMERS = 1_000
PATIENCE_S = 300.0
# Flink looks into classes of Java that are closed otherwise.
OPENED = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.lang", "java.util", "java.time", "java.util.concurrent", "java.net")
]


@dataclass(frozen=True, slots=True)
class Engine:
    """`aggregate(topic, out)` begins to write totals of the topic into the other one."""

    name: str
    aggregate: Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Measured:
    took_s: float
    fresh_ms: float


def kafka_beside(folder):
    """Messages a second and freshness of the three, on the same broker one after the other."""
    with running_broker() as broker:
        measured = {}
        for engine in (_slackwater, _flink, _streaming):
            with engine(broker, folder) as started:
                measured[started.name] = _measured(broker, started)
    ours = measured.pop("Slackwater")
    for name, other in measured.items():
        yield Figure(
            f"kafka_beside_{name.split()[0].lower()}",
            f"{MESSAGES} messages into totals in another topic: {MESSAGES / ours.took_s:.0f} a "
            f"second, {name} {MESSAGES / other.took_s:.0f}",
            "x its time",
            1,
            ours.took_s / other.took_s,
        )
        yield Figure(
            f"kafka_beside_{name.split()[0].lower()}_freshness",
            f"acknowledged until its total is in another topic, p50: {ours.fresh_ms:.0f} ms, "
            f"{name} {other.fresh_ms:.0f} ms",
            "x its time",
            1,
            ours.fresh_ms / other.fresh_ms,
        )


def _measured(broker, engine) -> Measured:
    warm, full = broker.new_topic(), broker.new_topic()
    _fill(broker, warm, WARM_UP)
    _fill(broker, full, MESSAGES)
    _run(broker, engine, warm, WARM_UP).close()
    began = time.perf_counter()
    totals = _run(broker, engine, full, MESSAGES)
    took_s = time.perf_counter() - began
    producer, times = broker.producer(), []
    for number in range(ROUNDS):
        _send(producer, full, number)
        assert producer.flush(60) == 0
        began = time.perf_counter()
        totals.wait_for(MESSAGES + number + 1)
        times.append((time.perf_counter() - began) * 1000)
    totals.close()
    return Measured(took_s, statistics.median(times[FIRST:]))


def _run(broker, engine, topic, count):
    out = broker.new_topic()
    totals = Totals(broker, out)
    engine.aggregate(topic, out)
    totals.wait_for(count)
    return totals


class Totals:
    """The last total of each customer, as a client reads them that sees only what is committed."""

    def __init__(self, broker, topic):
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": "bench",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._counts: dict[bytes, int] = {}
        self._total = 0

    def wait_for(self, total):
        until = time.monotonic() + PATIENCE_S
        while self._total != total:
            assert time.monotonic() < until, f"{self._total} of {total} messages are counted"
            first = self._consumer.poll(1)
            found = [] if first is None else [first, *self._consumer.consume(10_000, 0)]
            for message in found:
                if message.error() is None:
                    count = json.loads(message.value())["n"] if message.value() else 0
                    self._total += count - self._counts.get(message.key(), 0)
                    self._counts[message.key()] = count

    def close(self):
        self._consumer.close()


@contextmanager
def _slackwater(broker, folder) -> Iterator[Engine]:
    with Application(folder / "environment", master="local[2]") as application:
        application.sql("USE slackwater.default")
        options = f"BROKER '{broker.address}', SECURITY PROTOCOL 'PLAINTEXT'"
        application.sql(f"CREATE CONNECTION k TO KAFKA ({options})")
        application.sql("SET slackwater.statement_timeout = '10min'")

        def aggregate(topic, out):
            name = topic[:9]
            for statement in (
                f"CREATE SOURCE s_{name} (id BIGINT, customer STRING, amount DECIMAL(12, 2)) "
                f"FROM KAFKA CONNECTION k (TOPIC '{topic}') FORMAT JSON "
                "WITH (TIMESTAMP INTERVAL '100 ms')",
                f"CREATE MATERIALIZED VIEW v_{name} AS SELECT customer, count(*) AS n, "
                f"sum(amount) AS amount FROM s_{name} GROUP BY customer",
                f"CREATE SINK o_{name} FROM v_{name} INTO KAFKA CONNECTION k (TOPIC '{out}') "
                "KEY (customer) KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT",
            ):
                application.sql(statement, timeout_s=600)

        yield Engine("Slackwater", aggregate)


@contextmanager
def _flink(broker, folder) -> Iterator[Engine]:
    jars = retrieve(HERE / "flink.xml", ROOT / ".build" / "flink")
    source = HERE / "FlinkTopic.java"
    checkpoints = (folder / "flink").as_uri()
    command = [java(), "-Xmx2g", *OPENED, "-cp", f"{jars}/*", str(source)]
    with _process([*command, broker.address, checkpoints], folder / "flink.log") as aggregate:
        yield Engine("Flink SQL", aggregate)


@contextmanager
def _streaming(broker, folder) -> Iterator[Engine]:
    jars = retrieve(HERE / "streaming.xml", ROOT / ".build" / "streaming")
    # The rest is among Spark's own jars.
    own = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
    names = [str(each) for each in jars.iterdir() if each.name.startswith(own)]
    script = str(HERE / "streaming_topic.py")
    command = [sys.executable, script, broker.address, str(folder / "streaming"), ",".join(names)]
    with _process(command, folder / "streaming.log") as aggregate:
        yield Engine("Structured Streaming", aggregate)


@contextmanager
def _process(command, log) -> Iterator[Callable[[str, str], None]]:
    """A process that aggregates the topics of each line that it gets, and answers a line."""
    with ExitStack() as stack:
        errors = stack.enter_context(open(log, "wb"))
        started = stack.enter_context(
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        )
        stack.callback(started.kill)

        def aggregate(topic, out):
            started.stdin.write(f"{topic} {out}\n")
            started.stdin.flush()
            for line in started.stdout:
                if line.strip() == "started":
                    return
            raise RuntimeError(f"{command[0]} has ended: {log.read_text()[-4000:]}")

        yield aggregate


def _fill(broker, topic, count):
    producer = broker.producer(linger_ms="20", compression_type="lz4")
    for number in range(count):
        _send(producer, topic, number)
        if number % 10_000 == 0:
            producer.flush()
    assert producer.flush(60) == 0


def _send(producer, topic, number):
    customer, amount = number % CUSTOMERS, number % 10_000
    value = f'{{"id": {number}, "customer": "customer {customer}", "amount": {amount}.25}}'
    producer.produce(topic, value=value)
