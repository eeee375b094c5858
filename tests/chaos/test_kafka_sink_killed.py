"""A sink's process is killed, or stopped, inside a range over a real broker; another goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from contextlib import suppress

import pyarrow as pa
import pytest
from tests.support.kafka.reader import CommittedReader
from tests.support.waiting import wait_until

from slackwater.adapter.external.kafka_producer import (
    KafkaCluster,
    KafkaProducer,
    ProgressTopic,
    SinkNames,
)
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Frontier
from slackwater.repr.relation import RelationDesc
from slackwater.storage.kafka import sink as kafka_sink
from slackwater.storage.kafka.access import KafkaAccess
from slackwater.storage.kafka.sink import KafkaSink, SinkTopic
from slackwater.storage.kafka.sink_messages import Encoder, KafkaSinkConfig
from slackwater.storage.sink_folder import Claim

DESC = RelationDesc.of(k="long", v="string")
ROWS = 1_000
PIECE = 300

_WRITER = """
import os, signal, sys
from slackwater.persist.leadership import Fenced
from tests.chaos.test_kafka_sink_killed import write_all

address, topic, call, number, how = sys.argv[1:]
left = int(number)

def confirm():
    if os.path.exists(topic):
        raise Fenced(1, 2)

class Ending:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        def act(*arguments):
            global left
            if name == call:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), getattr(signal, how))
            answer = getattr(self.inner, name)(*arguments)
            if name + " done" == call:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), getattr(signal, how))
            return answer
        return act

try:
    write_all(address, topic, 1, confirm, Ending)
except Fenced as fenced:
    print(fenced)
"""


def opened(address, topic, epoch=1, confirm=lambda: None, around=lambda producer: producer):
    kafka_sink.PIECE_MESSAGES, kafka_sink.BATCH_MESSAGES = PIECE, 100
    access = KafkaAccess((("bootstrap.servers", address),))
    cluster = KafkaCluster(access, ProgressTopic(f"{topic}-progress"), "tests")
    config = KafkaSinkConfig(topic, "JSON", "JSON", "UPSERT", ("k",), partitions=2)
    names = SinkNames("s", "k", b"u1", f"tests-{topic}")
    cluster.ensure_topics(config, names)
    return KafkaSink(
        Encoder(config, DESC, "s"),
        SinkTopic(topic, f"{topic}-progress"),
        Claim("u1", "s", epoch, confirm),
        around(KafkaProducer(cluster, config, names)),
        snapshot=True,
        clock=lambda: 0,
        is_stopped=lambda: False,
    )


def write(sink):
    """One large range, and a small one behind it."""
    schema = DESC.update_schema()
    columns = [list(range(ROWS)), ["x"] * ROWS, [1] * (ROWS - 1) + [7], [1] * ROWS]
    rows = pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)
    for lower, upper in ((0, 5), (5, 9)):
        if sink.frontier is None or sink.frontier < Frontier(upper):
            sink.write(Frontier(lower), Frontier(upper), [rows])
    assert sink.frontier == Frontier(9)


def write_all(*arguments):
    """Opens the sink and writes, again after an error, as what runs sinks does."""

    def written():
        with suppress(SlackwaterError):
            write(opened(*arguments))
            return True
        return False

    wait_until(written, what="all is written")


def seen(kafka, topic):
    reader = CommittedReader(kafka.address, topic, 2)
    try:
        found = reader.wait(lambda found: len(found) >= ROWS, "all messages")
        return sorted(int(each.key[5:-1]) for each in found), reader.read()
    finally:
        reader.close()


def start(kafka, topic, folder, call, number, how):
    return subprocess.Popen(
        [sys.executable, "-c", _WRITER, kafka.address, topic, call, str(number), how],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip


PLACES = [
    ("fence done", 1),
    ("begin done", 2),
    ("send done", 5),
    ("commit", 2),
    ("commit done", 2),
    ("commit", 4),
    ("commit done", 5),
]


@pytest.mark.parametrize(("call", "number"), PLACES)
@pytest.mark.sampled(3)
def test_what_a_killed_sink_has_not_committed_is_written_once(kafka, tmp_path, call, number):
    topic = f"t{uuid.uuid4().hex}"
    with start(kafka, topic, tmp_path, call, number, "SIGKILL") as process:
        assert process.wait(60) == -signal.SIGKILL
    write_all(kafka.address, topic, 2)
    keys, messages = seen(kafka, topic)
    assert keys == list(range(ROWS))
    assert len(messages) == ROWS


@pytest.mark.parametrize(
    ("call", "number"), [("progress", 1), ("begin", 2), ("send", 5), ("commit", 2), ("commit", 5)]
)
@pytest.mark.sampled(3)
def test_a_sink_that_was_stopped_writes_nothing_beside_the_next_leader(
    kafka, tmp_path, call, number
):
    topic = f"t{uuid.uuid4().hex}"
    with start(kafka, topic, tmp_path, call, number, "SIGSTOP") as process:
        try:
            os.waitpid(process.pid, os.WUNTRACED)
            (tmp_path / topic).touch()
            write_all(kafka.address, topic, 2)
        finally:
            process.send_signal(signal.SIGCONT)
        assert process.stdout.read() == "epoch 1 is fenced by epoch 2\n"
    keys, messages = seen(kafka, topic)
    assert keys == list(range(ROWS))
    assert len(messages) == ROWS
