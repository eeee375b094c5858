"""The reader of a progress topic, with a real broker."""

from __future__ import annotations

import json
import uuid
from itertools import pairwise
from types import SimpleNamespace

import confluent_kafka
import confluent_kafka.admin
from tests.support.waiting import wait_until

from slackwater.adapter.external import kafka_producer
from slackwater.adapter.external.kafka_producer import KafkaCluster, ProgressTopic, SinkNames
from slackwater.storage.kafka.access import KafkaAccess
from slackwater.storage.kafka.sink_messages import KafkaSinkConfig

QUIET = 5
"""So many times in a row, a tenth of a second apart, a reader has asked for nothing."""


def committed(writer, topic, key, value):
    """A transaction with one record, behind which the topic has a mark that nobody reads."""
    writer.begin_transaction()
    writer.produce(topic, value, key)
    writer.commit_transaction()


def test_a_reader_of_progress_asks_for_nothing_once_it_has_read(kafka, monkeypatch):
    readers, asked = [], []

    def heard(statistics):
        brokers = json.loads(statistics)["brokers"].values()
        asked.append(sum(each["req"].get("Fetch", 0) for each in brokers))

    def reader(settings, **rest):
        told = {"statistics.interval.ms": 100, "stats_cb": heard}
        readers.append(confluent_kafka.Consumer({**settings, **told}, **rest))
        return readers[-1]

    def is_quiet():
        readers[0].poll(0.1)
        last = asked[-QUIET - 1 :]
        return len(last) > QUIET and all(before == after for before, after in pairwise(last))

    library = SimpleNamespace(**{**vars(confluent_kafka), "Consumer": reader})
    monkeypatch.setattr(kafka_producer, "confluent_kafka", lambda: library)
    topic = f"t{uuid.uuid4().hex}"
    access = KafkaAccess((("bootstrap.servers", kafka.address),))
    cluster = KafkaCluster(access, ProgressTopic(f"{topic}-progress"), "tests")
    names = SinkNames("s", "k", b"u1", f"tests-{topic}")
    cluster.ensure_topics(KafkaSinkConfig(topic, "JSON", "JSON", "UPSERT", ("k",)), names)
    assert cluster.last_record(names) is None
    writer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.address, "transactional.id": f"writer-{topic}"}
    )
    writer.init_transactions()
    for value in (b"first", b"second", b"third"):
        committed(writer, f"{topic}-progress", names.key, value)
        assert cluster.last_record(names) == value
        asked.clear()
        wait_until(is_quiet, what="the reader asks for nothing")
    assert len(readers) == 1
    cluster.close()
