"""Topics and transactions of a sink, of which the broker or librdkafka tells late."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.support.waiting import wait_until

from slackwater.adapter.external import kafka_producer
from slackwater.adapter.external.kafka_producer import (
    KafkaCluster,
    KafkaProducer,
    ProgressTopic,
    SinkNames,
)
from slackwater.repr.errors import SlackwaterError
from slackwater.storage.kafka.access import KafkaAccess
from slackwater.storage.kafka.sink import ProducerFenced
from slackwater.storage.kafka.sink_messages import KafkaSinkConfig

ACCESS = KafkaAccess((("bootstrap.servers", "127.0.0.1:1"),))
CONFIG = KafkaSinkConfig("messages", "JSON", "JSON", "DEBEZIUM")
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
    cluster = KafkaCluster(ACCESS, ProgressTopic("progress"), "g")
    cluster._admin = LateBroker(*there)
    assert cluster.ensure_topics(CONFIG, NAMES) == []
    assert min(cluster._admin.asked.values()) >= 3


class FencedLate:
    """A client whose commit is to be tried again, and that hears meanwhile of another producer."""

    def produce(self, *_):
        pass

    def commit_transaction(self, _):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "later", False, True))

    def poll(self, _):
        raise KafkaException(KafkaError(KafkaError._FENCED, "another one", True))

    def purge(self, **_):
        pass


def test_another_producer_is_heard_of_while_librdkafka_is_polled():
    cluster = KafkaCluster(ACCESS, ProgressTopic("progress"), "g")
    producer = KafkaProducer(cluster, CONFIG, NAMES)
    producer._producer = FencedLate()
    with pytest.raises(ProducerFenced):
        producer.commit(b"")


def test_one_look_at_the_progress_is_for_all_who_asked_before_it():
    cluster = KafkaCluster(ACCESS, ProgressTopic("progress"), "g")
    looks, go_on = [], threading.Event()

    def looked(_):
        looks.append(cluster._asked.number)
        go_on.wait()
        if len(looks) == 1:
            raise NoAnswer
        return SimpleNamespace(last={NAMES.key: f"look {len(looks)}".encode()})

    cluster._looked = looked
    with ThreadPoolExecutor(20) as threads:
        first = threads.submit(cluster.last_record, NAMES)
        wait_until(lambda: looks, what="the first one looks")
        others = [threads.submit(cluster.last_record, NAMES) for _ in range(19)]
        wait_until(lambda: cluster._asked.number == 20, what="all have asked")
        go_on.set()
        with pytest.raises(NoAnswer):
            first.result()
        assert {each.result() for each in others} == {b"look 2"}
    assert looks == [1, 20], "who asks while somebody looks is not answered by that look"
    assert cluster.last_record(NAMES) == b"look 3"


class NoAnswer(Exception):
    """No broker has answered."""


def test_a_sink_that_is_to_stop_does_not_wait_for_its_turn(monkeypatch):
    monkeypatch.setattr(kafka_producer, "WAIT_S", 0.01)
    cluster = KafkaCluster(ACCESS, ProgressTopic("progress"), "g")
    with ExitStack() as turns:
        for _ in range(kafka_producer.BEGINNING):
            turns.enter_context(cluster.turn(NAMES, lambda: False))
        with (
            pytest.raises(SlackwaterError, match="the sink is to stop"),
            cluster.turn(NAMES, lambda: True),
        ):
            pass
    with cluster.turn(NAMES, lambda: True):
        pass


def test_too_many_clients_are_told(monkeypatch):
    cluster = KafkaCluster(ACCESS, ProgressTopic("progress"), "g")

    def refused(*_, **__):
        raise RuntimeError("Failed to initialize thread local storage")

    monkeypatch.setattr(cluster, "library", SimpleNamespace(Producer=refused))
    with pytest.raises(SlackwaterError, match="about 1000") as caught:
        KafkaProducer(cluster, CONFIG, NAMES)
    assert caught.value.condition == "SLACKWATER_SINK_UNREACHABLE"
