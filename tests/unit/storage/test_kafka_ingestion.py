"""The ingestion of a topic whose declaration changes while it runs."""

from __future__ import annotations

import pytest
from tests.support.kafka.fake_topic import FakeCluster, FakeUpstream, Partition

from slackwater.planner.parser.kafka_source import Decoding, Payload
from slackwater.repr.ids import user_id
from slackwater.storage.ingestion import PartitionOffsets, StepSuperseded
from slackwater.storage.kafka.columns import source_columns
from slackwater.storage.kafka.decoding import Decoder
from slackwater.storage.kafka.envelopes import Appended, Reading
from slackwater.storage.kafka.ingestion import KafkaConfig, KafkaIngestion
from slackwater.storage.kafka.topic import TopicIdentity
from slackwater.storage.source_time import SourceFrontier


def test_nothing_is_read_once_the_source_is_declared_otherwise():
    """A step that waits for its commit is not given again, and brokers are not asked."""
    cluster, is_current = FakeCluster(), [True]
    cluster.send(0, None, b"a")

    def check():
        if not is_current[0]:
            raise StepSuperseded(user_id(1), 0, 0)

    decoding = Decoding(Payload("TEXT"))
    decoder = Decoder(decoding, source_columns(decoding, None))
    reading = Reading("t", decoding, decoder, lambda _: pytest.fail("nothing is large"))
    ingestion = KafkaIngestion(
        KafkaConfig("s", "t", TopicIdentity("cluster", "topic"), "s"),
        FakeUpstream(cluster),
        Appended(reading),
        None,
        check=check,
    )
    step = ingestion.poll(0)
    assert step.updates["s"].num_rows == 1
    assert ingestion.poll(1) is step
    assert not ingestion.superseded.is_set()
    is_current[0], cluster.fails = False, 1
    with pytest.raises(StepSuperseded):
        ingestion.poll(2)
    assert ingestion.superseded.is_set()


def test_partitions_are_behind_by_what_brokers_have_said():
    cluster = FakeCluster(partitions=[Partition() for _ in range(3)])
    for number in range(5):
        cluster.send(0, None, b"%d" % number)
    decoding = Decoding(Payload("TEXT"))
    decoder = Decoder(decoding, source_columns(decoding, None))
    ingestion = KafkaIngestion(
        KafkaConfig("s", "t", TopicIdentity("cluster", "topic"), "s"),
        FakeUpstream(cluster),
        Appended(Reading("t", decoding, decoder, lambda _: pytest.fail("nothing is large"))),
        None,
    )
    assert ingestion.ends() == {}, "it has no client yet"
    step = ingestion.poll(0)
    ingestion.committed(step)
    cluster.send(0, None, b"5")
    cluster.send(2, None, b"a")
    cluster.send(2, None, b"b")
    # Of the last partition nothing is read yet, so that the frontier does not name it.
    assert PartitionOffsets.of(step.frontier, ingestion.ends()) == (
        PartitionOffsets(0, 5, 6),
        PartitionOffsets(1, 0, 0),
        PartitionOffsets(2, 0, 2),
    )
    # What was said before what is committed was read is not less.
    assert PartitionOffsets.of(SourceFrontier.at(5), {0: 3}) == (PartitionOffsets(0, 5, 5),)
    assert PartitionOffsets.of(SourceFrontier.at(5), {}) == (PartitionOffsets(0, 5, None),)
