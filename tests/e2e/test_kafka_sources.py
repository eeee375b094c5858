"""Sources that read topics of a real broker, over a coordinator and Spark."""

from __future__ import annotations

from functools import partial

import pytest
from tests.support.applications import awaited
from tests.support.applications.application import SqlError
from tests.support.kafka.sending import send
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


becomes = partial(awaited.becomes, may_fail=False)


@pytest.fixture
def place(workplace, kafka):
    """A workplace with a connection to the broker, as `k`."""
    broker = f"BROKER '{kafka.address}', SECURITY PROTOCOL 'PLAINTEXT'"
    workplace.sql(f"CREATE CONNECTION k TO KAFKA ({broker}) WITH (VALIDATE = false)")
    return workplace


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
    partitions = (
        "SELECT partition, offset_known, offset_committed, lag"
        " FROM mz_internal.mz_source_partitions p"
        f" JOIN mz_catalog.mz_kafka_sources k ON k.id = p.id WHERE topic = '{topic}' ORDER BY 1"
    )
    becomes(place, partitions, [[0, 2, 2, 0], [1, 2, 2, 0]])


def test_a_key_has_its_last_value(place, kafka):
    topic = kafka.new_topic()
    send(kafka, topic, *((b"%d" % (n % 10), b'{"n": %d}' % n) for n in range(1000)))
    place.sql(
        f"CREATE SOURCE s (n INT, t STRING) FROM KAFKA CONNECTION k (TOPIC '{topic}') "
        "KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT WITH (TIMESTAMP INTERVAL '50 ms')"
    )
    place.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS c, sum(n) AS s FROM s")
    becomes(place, "SELECT * FROM v", [[10, sum(range(990, 1000))]])
    counted = (
        "SELECT messages_received, snapshot_records_known, snapshot_records_staged, "
        "snapshot_committed FROM mz_internal.mz_source_statistics s JOIN mz_catalog.mz_sources o "
        f"ON s.id = o.id JOIN mz_catalog.mz_kafka_sources k ON k.id = o.id WHERE topic = '{topic}'"
    )
    becomes(place, counted, [[1000, 1000, 1000, True]])
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


def test_everything_that_a_message_has(place, kafka):
    topic = kafka.new_topic()
    producer = kafka.producer()
    headers = [("a", b"first"), ("a", b"last"), ("raw", b"\xff"), ("none", None)]
    producer.produce(topic, key=b"k", value=b"v", timestamp=1_700_000_000_123, headers=headers)
    producer.produce(topic, key=b"k", value=b"w", timestamp=1_700_000_000_124)
    assert producer.flush(60) == 0
    place.sql(
        f"CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC '{topic}') "
        "KEY FORMAT JSON VALUE FORMAT BYTES INCLUDE TIMESTAMP AS `the time`, HEADERS, "
        "HEADER 'a' AS a, HEADER 'raw' AS raw BYTES, HEADER 'none' AS n"
    )
    assert place.rows("SELECT CAST(data AS STRING), `the time`, a, hex(raw), n FROM s") == [
        ["v", "2023-11-14T22:13:20.123000", "last", "FF", None],
        ["w", "2023-11-14T22:13:20.124000", None, None, None],
    ]
    query = "SELECT h.key, CAST(h.value AS STRING) FROM s LATERAL VIEW explode(headers) AS h"
    assert place.rows(query)[:2] == [["a", "first"], ["a", "last"]]


def test_what_is_no_row_is_an_error_until_its_key_has_another(place, kafka):
    topic = kafka.new_topic()
    send(kafka, topic, (b"a", b'{"n": 1}'), (b"b", b"no json"), (b"\xff", b"{}"), (None, b"{}"))
    source = (
        f"CREATE SOURCE s (n INT NOT NULL) FROM KAFKA CONNECTION k (TOPIC '{topic}') "
        "KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT {} WITH (TIMESTAMP INTERVAL '50 ms')"
    )
    place.sql(source.format(""))
    with pytest.raises(SqlError, match="SLACKWATER_SOURCE_ERROR") as caught:
        place.rows("SELECT * FROM s")
    assert f"topic {topic}, partition 0, offset" in caught.value.message
    status = "SELECT status FROM mz_internal.mz_source_statuses WHERE name = 's'"
    becomes(place, status, [["stalled"]])
    error = place.value("SELECT error FROM mz_internal.mz_source_statuses WHERE name = 's'")
    assert "SLACKWATER_SOURCE_BAD_MESSAGE" in error
    send(kafka, topic, (b"b", b'{"n": 2}'), (b"\xff", None), (None, None))
    becomes_readable(place, "SELECT key, n FROM s", [["a", 1], ["b", 2]])
    becomes(place, status, [["running"]])
    send(kafka, topic, (b"a", b"{}"))  # n is NOT NULL
    wait_until(lambda: fails(place, "SELECT * FROM s"), what="the error is there")
    place.sql("DROP SOURCE s")
    # From the beginning again: only what keys have in the end counts.
    send(kafka, topic, (b"a", None))
    place.sql(source.format(""))
    assert place.rows("SELECT key, n FROM s") == [["b", 2]]


def test_what_is_no_row_is_left_out_or_kept_beside(place, kafka):
    topic = kafka.new_topic()
    send(kafka, topic, (b"a", b"1;x"), (b"b", b"no number;y"), (b"c", b"3"), (b"d", b"\xff;z"))
    for name, on_error in (("skipped", "SKIP"), ("kept", "DEAD LETTER")):
        place.sql(
            f"CREATE SOURCE {name} (n INT, t STRING) FROM KAFKA CONNECTION k (TOPIC '{topic}') "
            f"FORMAT CSV WITH 2 COLUMNS DELIMITED BY ';' ON ERROR {on_error}"
        )
        assert place.rows(f"SELECT * FROM {name}") == [[1, "x"]]
    skipped = (
        "SELECT rows_skipped FROM mz_internal.mz_source_statistics s JOIN mz_catalog.mz_sources o "
        "ON s.id = o.id WHERE o.name = 'skipped'"
    )
    assert place.rows(skipped) == [[3]]
    letters = "SELECT partition, offset, CAST(key AS STRING), reason FROM kept_dead_letters"
    assert sorted(place.rows(letters)) == [
        [0, 1, "b", "'no number' is not an INT (column n)"],
        [0, 2, "c", "1 fields instead of 2"],
        [0, 3, "d", "it is not UTF-8 text"],
    ]
    place.sql("DROP SOURCE kept")
    assert fails(place, "SELECT * FROM kept_dead_letters")


def test_errors_of_values_in_a_column(place, kafka):
    topic = kafka.new_topic()
    send(kafka, topic, (b"a", b'{"n": 1}'), (b"b", b'{"n": "x"}'))
    place.sql(
        f"CREATE SOURCE s (n INT NOT NULL) FROM KAFKA CONNECTION k (TOPIC '{topic}') "
        "KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT "
        "(VALUE DECODING ERRORS = INLINE AS wrong) WITH (TIMESTAMP INTERVAL '50 ms')"
    )
    query = "SELECT key, n, wrong.description FROM s"
    reason = '"x" is not an INT (column n)'
    becomes(place, query, [["a", 1, None], ["b", None, reason]])
    send(kafka, topic, (b"b", b'{"n": 5}'))
    becomes(place, query, [["a", 1, None], ["b", 5, None]])


def test_a_source_begins_where_it_is_told_to(place, kafka):
    topic = kafka.new_topic(2)
    producer = kafka.producer()
    for number in range(10):
        producer.produce(topic, value=b"%d" % number, partition=number % 2, timestamp=1000 + number)
    assert producer.flush(60) == 0
    create = "CREATE SOURCE {} FROM KAFKA CONNECTION k (TOPIC '{}', {}) FORMAT TEXT"
    place.sql(create.format("by_offset", topic, "START OFFSET (3)"))
    assert sorted(place.rows("SELECT text FROM by_offset")) == [
        [str(n)] for n in (1, 3, 5, 6, 7, 8, 9)
    ]
    place.sql(create.format("by_time", topic, "START TIMESTAMP 1005"))
    assert sorted(place.rows("SELECT text FROM by_time")) == [[str(n)] for n in (5, 6, 7, 8, 9)]
    place.sql(create.format("by_now", topic, "START TIMESTAMP -1000"))
    assert place.rows("SELECT text FROM by_now") == []
    for wrong in ("START OFFSET (99)", "START OFFSET (1, 2, 3)"):
        with pytest.raises(SqlError, match="SLACKWATER_INVALID_OPTION"):
            place.sql(create.format("wrong", topic, wrong))


def test_partitions_are_added_and_transactions_are_whole(place, kafka):
    """A key that moves to a new partition has its newest message; what is not committed is not
    read, and what was aborted never is."""
    topic = kafka.new_topic()
    send(kafka, topic, (b"moves", b"old"))
    place.sql(
        f"CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC '{topic}') KEY FORMAT TEXT "
        "VALUE FORMAT TEXT ENVELOPE UPSERT WITH (TIMESTAMP INTERVAL '50 ms')"
    )
    assert place.rows("SELECT * FROM s") == [["moves", "old"]]
    kafka.add_partitions(topic, 3)
    producer = kafka.producer(transactional_id=f"of {topic}")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, key=b"moves", value=b"new", partition=2)
    producer.produce(topic, key=b"other", value=b"too", partition=0)
    producer.flush(60)
    send(kafka, topic, (b"third", b"x", 1))
    becomes(place, "SELECT * FROM s", [["moves", "old"], ["third", "x"]])
    producer.commit_transaction()
    becomes(place, "SELECT * FROM s", [["moves", "new"], ["third", "x"], ["other", "too"]])
    producer.begin_transaction()
    producer.produce(topic, key=b"moves", value=b"never", partition=2)
    producer.flush(60)
    producer.abort_transaction()
    send(kafka, topic, (b"moves", b"last", 2))
    becomes(place, "SELECT text FROM s WHERE key = 'moves'", [["last"]])
    becomes(
        place,
        "SELECT * FROM s_progress",
        [[0, 3], [1, 1], [2, 5], [None, 3]],
    )


def test_a_topic_that_was_made_anew_is_another_one(place, kafka):
    topic = kafka.new_topic()
    send(kafka, topic, (None, b"before"))
    place.sql(
        f"CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC '{topic}') FORMAT TEXT "
        "WITH (TIMESTAMP INTERVAL '50 ms')"
    )
    assert place.rows("SELECT * FROM s") == [["before"]]
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    send(kafka, topic, (None, b"another"), (None, b"and another"))
    status = "SELECT status, error FROM mz_internal.mz_source_statuses WHERE name = 's'"
    replaced = "SLACKWATER_SOURCE_REPLACED"
    told = wait_until(
        lambda: [row for row in place.rows(status) if replaced in (row[1] or "")],
        what="the source says that the topic is another one",
    )
    assert told[0][0] == "stalled"
    assert f"the topic {topic}" in told[0][1]
    assert place.rows("SELECT * FROM s") == [["before"]]


def test_messages_that_are_gone_are_told_and_skipped_when_that_is_said(place, cluster, kafka):
    topic = kafka.new_topic()
    send(kafka, topic, *((None, b"%d" % n) for n in range(5)))
    place.sql(
        f"CREATE SOURCE s IN CLUSTER {cluster} FROM KAFKA CONNECTION k (TOPIC '{topic}') "
        "FORMAT TEXT WITH (TIMESTAMP INTERVAL '50 ms')"
    )
    assert place.value("SELECT count(*) FROM s") == 5
    with pytest.raises(SqlError, match="SLACKWATER_NOTHING_LOST"):
        place.sql("ALTER SOURCE s SKIP LOST")
    place.sql(f"ALTER CLUSTER {cluster} SET (REPLICATION FACTOR 0)")
    send(kafka, topic, *((None, b"%d" % n) for n in range(5, 10)))
    kafka.delete_records(topic, 0, 7)
    place.sql(f"ALTER CLUSTER {cluster} SET (REPLICATION FACTOR 1)")
    status = "SELECT error FROM mz_internal.mz_source_statuses WHERE name = 's'"
    lost = "SLACKWATER_SOURCE_HISTORY_LOST"
    (error,) = wait_until(
        lambda: [row for row in place.rows(status) if lost in (row[0] or "")],
        what="the source says that messages are gone",
    )
    assert "no message 5 any more; its messages go from 7 to 10" in error[0]
    place.sql("ALTER SOURCE s SKIP LOST")
    becomes(place, "SELECT text FROM s WHERE text > '4'", [["7"], ["8"], ["9"]])


def test_a_topic_is_read_again(place, kafka):
    topic = kafka.new_topic()
    send(kafka, topic, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    create = (
        f"CREATE SOURCE {{}} FROM KAFKA CONNECTION k (TOPIC '{topic}') KEY FORMAT TEXT "
        "VALUE FORMAT TEXT ENVELOPE {} WITH (TIMESTAMP INTERVAL '50 ms')"
    )
    place.sql(create.format("s", "UPSERT"))
    place.sql(create.format("appended", "NONE"))
    place.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM s")
    becomes(place, "SELECT * FROM v", [[3]])
    kafka.delete_records(topic, 0, 2)
    send(kafka, topic, (b"d", b"2"))
    becomes(place, "SELECT * FROM v", [[4]])
    ids = "SELECT id FROM mz_catalog.mz_objects WHERE name IN ('s', 'v') ORDER BY name"
    before = place.rows(ids)
    place.sql("ALTER SOURCE s RESNAPSHOT")
    assert sorted(place.rows("SELECT * FROM s")) == [["c", "1"], ["d", "2"]]
    becomes(place, "SELECT * FROM v", [[2]])
    assert place.rows(ids) == before
    send(kafka, topic, (b"a", b"3"))
    becomes(place, "SELECT * FROM s", [["a", "3"], ["c", "1"], ["d", "2"]])
    with pytest.raises(SqlError, match="RESNAPSHOT of a source with ENVELOPE NONE"):
        place.sql("ALTER SOURCE appended RESNAPSHOT")
    with pytest.raises(SqlError, match="RESNAPSHOT TABLES of a source that reads a topic"):
        place.sql("ALTER SOURCE s RESNAPSHOT TABLES (s)")
    place.sql("CREATE TABLE t (k INT)")
    place.sql("CREATE SOURCE counting FROM LOAD GENERATOR COUNTER")
    for statement in ("ALTER SOURCE t RESNAPSHOT", "ALTER SOURCE counting SKIP LOST"):
        with pytest.raises(SqlError, match="SLACKWATER_WRONG_KIND"):
            place.sql(statement)
    place.sql("ALTER SOURCE IF EXISTS nothing RESNAPSHOT")


def becomes_readable(place, query, expected):
    """As `becomes`, for a query that fails at first."""
    wait_until(lambda: not fails(place, query), what=f"{query} can be read")
    becomes(place, query, expected)


def fails(place, query):
    try:
        place.rows(query)
    except SqlError:
        return True
    return False
