"""How many messages a sink writes in a second, encoded, and how long a small range takes."""

from __future__ import annotations

import statistics
import time

import pyarrow as pa
from tests.bench.figure import Figure
from tests.support.kafka.broker import running_broker

from slackwater.adapter.external.kafka_producer import (
    KafkaCluster,
    KafkaProducer,
    ProgressTopic,
    SinkNames,
)
from slackwater.repr.frontier import Frontier
from slackwater.repr.relation import RelationDesc
from slackwater.storage.kafka.access import KafkaAccess
from slackwater.storage.kafka.sink import KafkaSink, SinkTopic
from slackwater.storage.kafka.sink_messages import Encoder, KafkaSinkConfig
from slackwater.storage.sink_folder import Claim

MESSAGES = 500_000
ROUNDS = 120
DESC = RelationDesc.of(id="long", customer="string", amount="decimal(12,2)", at="timestamp")


def kafka_sink(folder):
    """One large range of transactions, then one small range after the other."""
    with running_broker() as broker:
        topic = broker.new_topic()
        access = KafkaAccess((("bootstrap.servers", broker.address),))
        cluster = KafkaCluster(access, ProgressTopic("progress"), "bench")
        config = KafkaSinkConfig(topic, "TEXT", "JSON", "UPSERT", ("id",))
        names = SinkNames("s", "k", b"u1", "bench")
        cluster.ensure_topics(config, names)
        sink = KafkaSink(
            Encoder(config, DESC, "s"),
            SinkTopic(topic, "progress"),
            Claim("u1", "s", 1, lambda: None),
            KafkaProducer(cluster, config, names),
            snapshot=True,
            clock=lambda: int(time.time() * 1000),
            is_stopped=lambda: False,
        )
        rows = _updates(0, MESSAGES, 1)
        began = time.perf_counter()
        sink.write(Frontier(0), Frontier(2), [rows])
        took_s = time.perf_counter() - began
        yield Figure(
            "kafka_sink",
            f"time for 1000 messages of a large range ({MESSAGES} of JSON, four columns)",
            "ms",
            1000 / 50,
            took_s * 1_000_000 / MESSAGES,
        )
        times = []
        for number in range(ROUNDS):
            update = _updates(number, number + 1, 2 + number)
            began = time.perf_counter()
            sink.write(Frontier(2 + number), Frontier(3 + number), [update])
            times.append((time.perf_counter() - began) * 1000)
        sink.close()
        yield Figure(
            "kafka_sink_commit",
            "a range with one message, committed, p50",
            "ms",
            60,
            statistics.median(times[20:]),
        )


def _updates(first, end, time_ms):
    schema = DESC.update_schema()
    numbers, size = range(first, end), end - first
    columns = [
        numbers,
        [f"customer {number % 1000}" for number in numbers],
        pa.array([number % 10_000 for number in numbers]).cast(pa.decimal128(19, 0)),
        pa.array(numbers, pa.int64()),
        [time_ms] * size,
        [1] * size,
    ]
    return pa.table(
        [
            c.cast(f.type) if isinstance(c, pa.Array) else pa.array(c, f.type)
            for c, f in zip(columns, schema, strict=True)
        ],
        schema=schema,
    )
