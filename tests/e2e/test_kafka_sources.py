"""Sources that read topics of a real broker, over a coordinator and Spark."""

from __future__ import annotations

import pytest
from tests.support.applications.application import SqlError
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


@pytest.fixture
def place(workplace, kafka):
    """A workplace with a connection to the broker, as `k`."""
    broker = f"BROKER '{kafka.address}', SECURITY PROTOCOL 'PLAINTEXT'"
    workplace.sql(f"CREATE CONNECTION k TO KAFKA ({broker}) WITH (VALIDATE = false)")
    return workplace


def send(kafka, topic, *messages):
    """Sends (key, value), or (key, value, partition), and returns when all are acknowledged."""
    producer = kafka.producer()
    for key, value, *partition in messages:
        where = {"partition": partition[0]} if partition else {}
        producer.produce(topic, key=key, value=value, **where)
    assert producer.flush(60) == 0


def becomes(place, query, expected):
    """Waits until the query has these rows."""

    def rows():
        found = sorted(place.rows(query), key=repr)
        return found if found == sorted(expected, key=repr) else None

    return wait_until(rows, what=f"{query} is {expected}")


def test_each_message_is_a_row(place, kafka):
    topic = kafka.new_topic(2)
    send(kafka, topic, (b"a", b"one", 0), (None, "zw\u00f6lf".encode(), 1), (b"b", None, 1))
    place.sql(
        f"CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC '{topic}') "
        "KEY FORMAT BYTES VALUE FORMAT TEXT INCLUDE KEY, PARTITION AS p, OFFSET "
        "WITH (TIMESTAMP INTERVAL '50 ms')"
    )
    assert sorted(place.rows("SELECT * FROM s"), key=repr) == sorted(
        [["61", "one", 0, 0], [None, "zw\u00f6lf", 1, 0], ["62", None, 1, 1]], key=repr
    )
    send(kafka, topic, (b"c", b"later", 0))
    becomes(place, "SELECT text FROM s WHERE p = 0", [["one"], ["later"]])


def test_a_key_has_its_last_value(place, kafka):
    topic = kafka.new_topic()
    send(kafka, topic, *((b"%d" % (n % 10), b'{"n": %d}' % n) for n in range(1000)))
    place.sql(
        f"CREATE SOURCE s (n INT, t STRING) FROM KAFKA CONNECTION k (TOPIC '{topic}') "
        "KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT WITH (TIMESTAMP INTERVAL '50 ms')"
    )
    place.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS c, sum(n) AS s FROM s")
    becomes(place, "SELECT * FROM v", [[10, sum(range(990, 1000))]])
    send(kafka, topic, (b"3", None), (b"4", b'{"n": 1, "t": "x"}'), (b"new", b"{}"))
    becomes(
        place,
        "SELECT key, n, t FROM s WHERE n < 990 OR n IS NULL",
        [["4", 1, "x"], ["new", None, None]],
    )
    becomes(place, "SELECT * FROM v", [[10, sum(range(990, 1000)) - 993 - 994 + 1]])


def test_a_topic_that_is_not_there(place):
    with pytest.raises(SqlError, match="SLACKWATER_UNKNOWN_TOPIC"):
        place.sql("CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 'nothing-like-it') FORMAT TEXT")
