"""Sinks that write topics of a real broker, over a coordinator and Spark."""

from __future__ import annotations

import json

import pytest
from tests.support.kafka.reader import CommittedReader

pytestmark = pytest.mark.spark


@pytest.fixture
def place(workplace, kafka):
    """A workplace with a connection to the broker, as `k`."""
    broker = f"BROKER '{kafka.address}', SECURITY PROTOCOL 'PLAINTEXT'"
    workplace.sql(f"CREATE CONNECTION k TO KAFKA ({broker}) WITH (VALIDATE = false)")
    return workplace


@pytest.fixture
def reader(kafka):
    """Opens readers of topics, and ends them."""
    opened = []

    def open_one(topic, partitions=1):
        opened.append(CommittedReader(kafka.address, topic, partitions))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


def state(messages):
    """The last value of each key, without those that are deleted."""
    found = {}
    for each in messages:
        found[each.key] = each.value
    return {json.dumps(json.loads(k)): json.loads(v) for k, v in found.items() if v is not None}


def test_a_key_has_its_last_row(place, kafka, reader):
    topic = kafka.new_topic()
    place.sql("CREATE TABLE t (k INT, v STRING)")
    place.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    place.sql(
        f"CREATE SINK s FROM t INTO KAFKA CONNECTION k (TOPIC '{topic}') "
        "KEY (k) FORMAT JSON ENVELOPE UPSERT"
    )
    place.sql("UPDATE t SET v = 'c' WHERE k = 1")
    place.sql("DELETE FROM t WHERE k = 2")
    messages = reader(topic).wait(lambda found: len(found) >= 4, "four messages")
    assert [(each.key, each.value) for each in messages] == [
        (b'{"k":1}', b'{"k":1,"v":"a"}'),
        (b'{"k":2}', b'{"k":2,"v":"b"}'),
        (b'{"k":1}', b'{"k":1,"v":"c"}'),
        (b'{"k":2}', None),
    ]
    times = [each.time for each in messages]
    assert times == sorted(times)
    assert times[0] == times[1] < times[2] < times[3]
