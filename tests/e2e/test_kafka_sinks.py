"""Sinks that write topics of a real broker, over a coordinator and Spark."""

from __future__ import annotations

import pytest
from tests.support.applications.application import Application, SqlError
from tests.support.kafka.broker import running_broker
from tests.support.kafka.reader import CommittedReader
from tests.support.waiting import wait_until

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
    counts = (
        "SELECT t.messages_staged, t.messages_committed, t.bytes_committed, t.replica_id IS NULL "
        "FROM slackwater.mz_internal.mz_sink_statistics t "
        "JOIN slackwater.mz_catalog.mz_kafka_sinks k ON k.id = t.id WHERE k.topic = "
    )
    size = sum(len(each.key) + len(each.value or b"") for each in messages)
    assert place.rows(f"{counts}'{topic}'") == [[4, 4, size, False]]
    ((name, kind, *_),) = place.rows("SHOW SINKS")
    assert (name, kind) == ("s", "kafka")
    times = [each.time for each in messages]
    assert times == sorted(times)
    assert times[0] == times[1] < times[2] < times[3]


def test_changes_of_a_row_are_one_message_with_a_key(place, kafka, reader):
    keyed, unkeyed = kafka.new_topic(), kafka.new_topic()
    place.sql("CREATE TABLE t (k INT, v STRING)")
    place.sql("INSERT INTO t VALUES (1, 'a')")
    place.sql(
        f"CREATE SINK s FROM t INTO KAFKA CONNECTION k (TOPIC '{keyed}') "
        "KEY (k) KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE DEBEZIUM WITH (SNAPSHOT = false)"
    )
    place.sql(
        f"CREATE SINK u FROM t INTO KAFKA CONNECTION k (TOPIC '{unkeyed}') "
        "FORMAT JSON ENVELOPE DEBEZIUM"
    )
    place.sql("UPDATE t SET v = 'b'")
    place.sql("DELETE FROM t")
    messages = reader(keyed).wait(lambda found: len(found) >= 2, "two messages")
    assert [(each.key, each.value) for each in messages] == [
        (b"1", b'{"before":{"k":1,"v":"a"},"after":{"k":1,"v":"b"}}'),
        (b"1", b'{"before":{"k":1,"v":"b"},"after":null}'),
    ]
    messages = reader(unkeyed).wait(lambda found: len(found) >= 4, "four messages")
    assert {each.key for each in messages} == {None}
    assert sorted(each.value for each in messages) == [
        b'{"before":null,"after":{"k":1,"v":"a"}}',
        b'{"before":null,"after":{"k":1,"v":"b"}}',
        b'{"before":{"k":1,"v":"a"},"after":null}',
        b'{"before":{"k":1,"v":"b"},"after":null}',
    ]


def murmur2(data):
    """The hash of Java's clients."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def test_partitions_are_those_of_java(place, kafka, reader):
    # What Kafka's own tests of its hash expect.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    assert {each: murmur2(each) for each in known} == {
        each: value & 0xFFFFFFFF for each, value in known.items()
    }
    topic = kafka.new_topic(7)
    place.sql("CREATE TABLE t (k STRING, v STRING)")
    place.sql("INSERT INTO t SELECT concat('key', id), 'x' FROM range(50)")
    place.sql(
        f"CREATE SINK s FROM t INTO KAFKA CONNECTION k (TOPIC '{topic}') "
        "KEY (k) KEY FORMAT TEXT VALUE FORMAT TEXT ENVELOPE UPSERT"
    )
    messages = reader(topic, 7).wait(lambda found: len(found) >= 50, "all messages")
    assert {each.key: each.partition for each in messages} == {
        key: (murmur2(key) & 0x7FFFFFFF) % 7 for key in (b"key%d" % n for n in range(50))
    }
    assert {each.value for each in messages} == {b"x"}


def test_headers_partitions_and_keys_that_are_not_enforced(place, kafka, reader):
    topic = f"made-{kafka.new_topic()}"
    place.sql("CREATE TABLE t (k INT, p BIGINT, h MAP<STRING, STRING>, v INT)")
    place.sql(
        "INSERT INTO t VALUES (1, 4, map('b', 'x', 'a', 'y'), 9), (1, 4, map(), 10), "
        "(2, -1, map('slackwater-timestamp', '7'), 1), (3, NULL, NULL, NULL)"
    )
    options = (
        f"TOPIC '{topic}', TOPIC PARTITION COUNT 3, TOPIC REPLICATION FACTOR 1, "
        "TOPIC CONFIG MAP('retention.ms' => '12345678'), PARTITION BY p, COMPRESSION TYPE 'gzip'"
    )
    place.sql(
        f"CREATE SINK s FROM t INTO KAFKA CONNECTION k ({options}) "
        "KEY (k, p) NOT ENFORCED HEADERS h FORMAT JSON ENVELOPE UPSERT"
    )
    messages = reader(topic, 3).wait(lambda found: len(found) >= 3, "three messages")
    time = ("slackwater-timestamp", str(messages[0].time).encode())
    assert {each.key: (each.partition, each.value, each.headers) for each in messages} == {
        b'{"k":1,"p":4}': (1, b'{"k":1,"p":4,"v":10}', [time]),
        b'{"k":2,"p":-1}': (2, b'{"k":2,"p":-1,"v":1}', [time]),
        b'{"k":3,"p":null}': (0, b'{"k":3,"p":null,"v":null}', [time]),
    }
    place.sql("DELETE FROM t WHERE v IS NULL OR v = 10")
    messages = reader(topic, 3).wait(lambda found: len(found) >= 5, "two deletions")
    assert {each.key for each in messages if each.value is None} == {
        b'{"k":1,"p":4}',
        b'{"k":3,"p":null}',
    }
    # A topic that is there is used as it is.
    place.sql(
        f"CREATE SINK again FROM t INTO KAFKA CONNECTION k (TOPIC '{topic}', "
        "TOPIC PARTITION COUNT 4, TOPIC CONFIG MAP('retention.ms' => '1')) "
        "FORMAT JSON ENVELOPE DEBEZIUM"
    )
    notices = [message for _, _, message, _ in place.rows("SHOW NOTICES")]
    assert (
        f"The topic {topic} is used as it is: it has 3 partitions, its retention.ms is 12345678."
        in notices
    )


def test_names_kinds_and_what_depends_on_what(place, kafka):
    topic = kafka.new_topic()
    place.sql("CREATE TABLE t (k INT)")
    place.sql(
        f"CREATE SINK s FROM t INTO KAFKA CONNECTION k (TOPIC '{topic}') "
        "KEY (k) FORMAT JSON ENVELOPE UPSERT"
    )
    place.sql("ALTER CONNECTION k RENAME TO l")
    ((_, text),) = place.rows("SHOW CREATE SINK s")
    assert ".`l` (TOPIC" in text
    assert text.endswith("KEY (`k`) FORMAT JSON ENVELOPE UPSERT")
    with pytest.raises(SqlError, match="SLACKWATER_DEPENDENT_OBJECTS"):
        place.sql("DROP CONNECTION l")
    (found,) = place.rows(
        "SELECT s.type, s.envelope_type, s.format, s.key_format, k.topic, c.name "
        "FROM slackwater.mz_catalog.mz_sinks s "
        "JOIN slackwater.mz_catalog.mz_kafka_sinks k ON k.id = s.id "
        "JOIN slackwater.mz_catalog.mz_connections c ON c.id = s.connection_id "
        f"WHERE topic = '{topic}'"
    )
    assert found == ["kafka", "upsert", "json", "json", topic, "l"]
    place.sql("DROP CONNECTION l CASCADE")
    assert place.rows("SHOW SINKS") == []


def test_another_relation_and_another_cluster_go_on_with_the_topic(place, cluster, kafka, reader):
    topic = kafka.new_topic()
    place.sql("CREATE TABLE t (k INT, v STRING)")
    place.sql("INSERT INTO t VALUES (1, 'a')")
    place.sql("CREATE MATERIALIZED VIEW w AS SELECT k, upper(v) AS v FROM t")
    place.sql(
        f"CREATE SINK s FROM t INTO KAFKA CONNECTION k (TOPIC '{topic}') "
        "KEY (k) FORMAT JSON ENVELOPE UPSERT"
    )
    place.sql("ALTER SINK s SET FROM w")
    place.sql("INSERT INTO t VALUES (2, 'b')")
    follower = reader(topic)
    follower.wait(lambda found: len(found) >= 2, "the other relation's row")
    place.sql(f"ALTER SINK s SET CLUSTER {cluster}")
    place.sql("INSERT INTO t VALUES (3, 'c')")
    messages = follower.wait(lambda found: len(found) >= 3, "the other cluster's row")
    assert [each.value for each in messages] == [
        b'{"k":1,"v":"a"}',
        b'{"k":2,"v":"B"}',
        b'{"k":3,"v":"C"}',
    ]


def test_a_sink_without_its_progress_begins_nothing(place, kafka, reader):
    topic, progress = kafka.new_topic(), f"progress-{kafka.new_topic()}"
    place.sql(
        f"CREATE CONNECTION p TO KAFKA (BROKER '{kafka.address}', SECURITY PROTOCOL 'PLAINTEXT', "
        f"PROGRESS TOPIC '{progress}') WITH (VALIDATE = false)"
    )
    place.sql("CREATE TABLE t (k INT)")
    place.sql("INSERT INTO t VALUES (1)")
    place.sql(
        f"CREATE SINK s FROM t INTO KAFKA CONNECTION p (TOPIC '{topic}') "
        "KEY (k) FORMAT JSON ENVELOPE UPSERT"
    )
    follower = reader(topic)
    follower.wait(len, "the first message")
    # What is out is on record before the sink goes on with another relation.
    place.sql("CREATE TABLE u (k INT)")
    place.sql("ALTER SINK s SET FROM u")
    kafka.delete_topic(progress)
    place.sql("ALTER CONNECTION p SET (PROGRESS TOPIC REPLICATION FACTOR = 1)")

    def error():
        found = place.rows("SELECT error FROM slackwater.mz_internal.mz_sink_statuses")
        return [each for (each,) in found if each and progress in each]

    # What it was about to send when the topic went fails first, as if the brokers were away.
    lost = "[SLACKWATER_SINK_PROGRESS_LOST]"
    (found,) = wait_until(
        lambda: [each for each in error() if each.startswith(lost)], what="the sink is stalled"
    )
    assert "it is gone" in found
    kafka.create_topic(progress, cleanup_policy="compact")
    wait_until(lambda: "it says nothing" in "".join(error()), what="an empty topic is no progress")
    assert len(follower.read()) == 1
    other = (
        f"CREATE SINK o FROM t INTO KAFKA CONNECTION p (TOPIC '{topic}') "
        "FORMAT JSON ENVELOPE DEBEZIUM"
    )
    kafka.delete_topic(progress)
    kafka.create_topic(progress)
    with pytest.raises(SqlError, match=r"its cleanup\.policy is delete"):
        place.sql(other)


@pytest.mark.nightly
def test_a_broker_that_restarts_and_leaders_that_are_killed(tmp_path):
    """A range of several transactions, a broker that is away, and another leader: each row once."""
    rows = 250_000
    with running_broker() as broker:
        topic = broker.new_topic()
        location = tmp_path / "location"
        app = Application(location)
        try:
            app.sql("USE slackwater")
            app.sql(
                f"CREATE CONNECTION k TO KAFKA (BROKER '{broker.address}', "
                "SECURITY PROTOCOL 'PLAINTEXT') WITH (VALIDATE = false)"
            )
            app.sql("CREATE TABLE t (k INT, v STRING)")
            app.sql(f"INSERT INTO t SELECT CAST(id AS INT), 'x' FROM range({rows})")
            app.sql(
                f"CREATE SINK s FROM t INTO KAFKA CONNECTION k (TOPIC '{topic}') "
                "KEY (k) KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT"
            )
            reader = CommittedReader(broker.address, topic)
            reader.read_first()
            # Far more is to come: `tests/chaos/test_kafka_sink_killed.py` has each place.
            app.kill()
        finally:
            app.close()
        with Application(location) as app:
            app.sql("USE slackwater")
            # Nobody leads until a statement needs that.
            assert app.value("SELECT count(*) FROM t") == rows
            reader.wait(lambda found: len(found) >= rows, "the rest of the range")
            broker.stop()
            app.sql(f"INSERT INTO t VALUES ({rows}, 'y')")

            def status():
                ((found, error),) = app.rows(
                    "SELECT status, error FROM slackwater.mz_internal.mz_sink_statuses"
                )
                return found == "stalled" and error

            error = wait_until(status, what="the sink is stalled")
            assert error.startswith("[SLACKWATER_SINK_UNREACHABLE]")
            broker.start()
            reader.wait(lambda found: len(found) > rows, "the row of meanwhile")
            wait_until(lambda: not status(), what="the sink runs")
            app.sql(f"INSERT INTO t VALUES ({rows + 1}, 'z')")
            found = reader.wait(lambda found: len(found) > rows + 1, "the last row")
        reader.close()
    assert [int(each.key) for each in found[-2:]] == [rows, rows + 1]
    assert sorted(int(each.key) for each in found) == list(range(rows + 2))
