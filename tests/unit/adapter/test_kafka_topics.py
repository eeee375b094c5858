"""Topics that a sink makes, of which its broker hears late."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from slackwater.adapter.external.kafka_producer import KafkaCluster, ProgressTopic, SinkNames
from slackwater.storage.kafka.access import KafkaAccess
from slackwater.storage.kafka.sink_messages import KafkaSinkConfig

NAMES = SinkNames("w.s", "w.k", b"u1", "slackwater-u1")


def answered(value):
    future = Future()
    if isinstance(value, int):
        future.set_exception(KafkaException(KafkaError(value)))
    else:
        future.set_result(value)
    return future


class LateBroker:
    """An administrator's client of a broker that knows a topic when it was asked three times."""

    def __init__(self, *there):
        self.there = set(there)
        self.asked = Counter()

    def poll(self, _):
        return 0

    def create_topics(self, topics, **_):
        names = [each.topic for each in topics]
        exists = KafkaError.TOPIC_ALREADY_EXISTS
        return {name: answered(exists if name in self.there else None) for name in names}

    def describe_topics(self, topics, **_):
        (name,) = topics.topic_names
        self.asked[name] += 1
        if self.asked[name] < 3:
            return {name: answered(KafkaError.UNKNOWN_TOPIC_OR_PART)}
        return {name: answered(SimpleNamespace(topic_id=name, partitions=[0]))}

    def describe_configs(self, resources, **_):
        policy = SimpleNamespace(value="compact")
        return {each: answered({"cleanup.policy": policy}) for each in resources}


@pytest.mark.parametrize("there", [(), ("progress", "messages")])
def test_a_topic_that_was_just_made_is_not_gone(there):
    """Also when another sink has just made it."""
    access = KafkaAccess((("bootstrap.servers", "127.0.0.1:1"),))
    cluster = KafkaCluster(access, ProgressTopic("progress"), "g")
    cluster._admin = LateBroker(*there)
    config = KafkaSinkConfig("messages", "JSON", "JSON", "DEBEZIUM")
    assert cluster.ensure_topics(config, NAMES) == []
    assert min(cluster._admin.asked.values()) >= 3
