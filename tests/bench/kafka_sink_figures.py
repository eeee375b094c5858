"""How many messages a sink writes in a second, encoded, how long a small range takes, and how soon
many sinks of a connection go on."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

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
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.storage.kafka.access import KafkaAccess
from slackwater.storage.kafka.sink import KafkaSink, SinkTopic
from slackwater.storage.kafka.sink_avro import SchemaIds, SinkSchema
from slackwater.storage.kafka.sink_messages import Encoder, KafkaSinkConfig
from slackwater.storage.sink_folder import Claim

MESSAGES = 500_000
ROUNDS = 120
SINKS = 900
"""A process cannot have many more clients of Kafka: about a thousand."""
DESC = RelationDesc.of(id="long", customer="string", amount="decimal(12,2)", at="timestamp")


AVRO = SinkSchema(GlobalId("u2"))


def kafka_sink(folder):
    """One large range of transactions in JSON, and in Avro; one small range after the other."""
    with running_broker() as broker:
        access = KafkaAccess((("bootstrap.servers", broker.address),))
        cluster = KafkaCluster(access, ProgressTopic("progress"), "bench")
        in_avro = KafkaSinkConfig(
            broker.new_topic(),
            "AVRO",
            "AVRO",
            "UPSERT",
            ("id",),
            key_schema=AVRO,
            value_schema=AVRO,
        )
        sink = _opened(cluster, in_avro, SinkNames("a", "k", b"u3", "avro"))
        yield Figure(
            "kafka_sink_avro",
            f"time for 1000 messages of a large range ({MESSAGES} of Avro, four columns)",
            "ms",
            1000 / 50,
            _large_range(sink),
        )
        sink.close()
        config = KafkaSinkConfig(broker.new_topic(), "TEXT", "JSON", "UPSERT", ("id",))
        sink = _opened(cluster, config, SinkNames("s", "k", b"u1", "bench"))
        yield Figure(
            "kafka_sink",
            f"time for 1000 messages of a large range ({MESSAGES} of JSON, four columns)",
            "ms",
            1000 / 50,
            _large_range(sink),
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
        yield from _many(broker, access)


def _many(broker, access):
    """Many sinks of a connection, each in a thread of its own, as after a restart of the leader."""
    config = KafkaSinkConfig(broker.new_topic(), "TEXT", "JSON", "UPSERT", ("id",))
    update = _updates(0, 1, 1)
    for is_again in (False, True):
        cluster = KafkaCluster(access, ProgressTopic("many"), "bench")
        cluster.ensure_topics(config, SinkNames("s", "k", b"0", "many"))
        used_s, began = time.process_time(), time.perf_counter()
        with ThreadPoolExecutor(SINKS) as threads:
            sinks = list(threads.map(partial(_one_of_many, cluster, config), range(SINKS)))
        took_s, used_s = time.perf_counter() - began, time.process_time() - used_s
        assert all((each.frontier is not None) == is_again for each in sinks)
        if is_again:
            yield Figure(
                "kafka_sinks",
                f"{SINKS} sinks of a connection until all go on ({used_s:.1f} s of a processor, "
                f"{_resident_mb()} MB in all)",
                "s",
                5,
                took_s,
            )
        while sinks:
            each = sinks.pop()
            if not is_again:
                each.write(Frontier(0), Frontier(2), [update])
            each.close()
        cluster.close()


def _one_of_many(cluster, config, number):
    return _sink(cluster, config, SinkNames("s", "k", str(number).encode(), f"many-{number}"))


def _resident_mb():
    with open("/proc/self/status") as file:
        kib = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
    return kib // 1024


def _opened(cluster, config, names):
    """A sink that has not begun."""
    cluster.ensure_topics(config, names)
    return _sink(cluster, config, names)


def _sink(cluster, config, names):
    return KafkaSink(
        Encoder(config, DESC, "s", SchemaIds(1, 2)),
        SinkTopic(config.topic, "progress"),
        Claim(names.key.decode(), "s", 1, lambda: None),
        KafkaProducer(cluster, config, names),
        snapshot=True,
        clock=lambda: int(time.time() * 1000),
        is_stopped=lambda: False,
    )


def _large_range(sink):
    """The milliseconds that 1000 messages take."""
    rows = _updates(0, MESSAGES, 1)
    began = time.perf_counter()
    sink.write(Frontier(0), Frontier(2), [rows])
    return (time.perf_counter() - began) * 1_000_000 / MESSAGES


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
