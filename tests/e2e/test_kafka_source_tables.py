"""Tables of sources that read topics of a real broker, over a coordinator and Spark."""

from __future__ import annotations

import pytest
from tests.e2e.test_kafka_sources import becomes, place
from tests.support.applications.application import SqlError
from tests.support.kafka.sending import send

pytestmark = pytest.mark.spark

__all__ = ["place"]


def test_tables_read_one_topic_each_in_its_own_way(place, kafka):
    topic = kafka.new_topic(2)
    send(kafka, topic, *((b"%d" % (n % 10), b'{"n": %d}' % n, n % 2) for n in range(100)))
    place.sql(
        f"CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC '{topic}') "
        "WITH (TIMESTAMP INTERVAL '50 ms')"
    )
    with pytest.raises(SqlError, match="SLACKWATER_WRONG_KIND"):
        place.rows("SELECT * FROM s")
    place.sql("CREATE TABLE log FROM SOURCE s FORMAT TEXT INCLUDE PARTITION, OFFSET")
    place.sql(
        f"CREATE TABLE last (n INT NOT NULL) FROM SOURCE s (REFERENCE `{topic}`) "
        "KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT"
    )
    assert place.rows("SELECT count(*) FROM log") == [[100]]
    assert place.rows("SELECT count(*), min(n) FROM last") == [[10, 90]]
    place.sql("CREATE MATERIALIZED VIEW v AS SELECT sum(n) AS s FROM last")
    send(kafka, topic, (b"0", b"no json", 0))
    # The error is the one table's: the other one goes on, and so does the source.
    becomes(place, "SELECT count(*) FROM log", [[101]])
    with pytest.raises(SqlError, match="SLACKWATER_SOURCE_ERROR"):
        place.rows("SELECT * FROM last")
    status = (
        "SELECT status FROM mz_internal.mz_source_statuses t JOIN mz_catalog.mz_kafka_sources k "
        f"ON t.id = k.id WHERE topic = '{topic}'"
    )
    assert place.rows(status) == [["running"]]
    send(kafka, topic, (b"0", b'{"n": 1}', 0))
    becomes(place, "SELECT count(*) FROM log", [[102]])
    assert place.rows("SELECT n FROM last WHERE key = '0'") == [[1]]
    # One that comes later has all of it, at once.
    place.sql("CREATE TABLE skipping (n INT) FROM SOURCE s FORMAT JSON ON ERROR SKIP")
    assert place.rows("SELECT count(*) FROM skipping") == [[101]]
    becomes(place, "SELECT * FROM v", [[sum(range(91, 100)) + 1]])
    named = (
        "SELECT t.topic, t.envelope_type, t.key_format, t.value_format FROM "
        f"mz_internal.mz_kafka_source_tables t WHERE topic = '{topic}'"
    )
    expected = [
        [topic, "none", None, "text"],
        [topic, "upsert", "text", "json"],
        [topic, "none", None, "json"],
    ]
    assert sorted(place.rows(named), key=repr) == sorted(expected, key=repr)
    columns = f"SELECT columns FROM mz_internal.mz_source_references WHERE name = '{topic}'"
    assert place.rows(columns) == [[None]]
    place.sql("ALTER SOURCE s REFRESH REFERENCES")
    place.sql("DROP TABLE log")
    send(kafka, topic, (b"9", b'{"n": 2}', 1))
    becomes(place, "SELECT count(*) FROM skipping", [[102]])
    with pytest.raises(SqlError, match="SLACKWATER_DEPENDENT_OBJECTS"):
        place.sql("DROP SOURCE s")
    place.sql("DROP SOURCE s CASCADE")


def test_tables_with_keys_are_read_again_while_the_others_go_on(place, kafka):
    topic = kafka.new_topic()
    send(kafka, topic, *((b"%d" % n, b"first", 0) for n in range(20)))
    place.sql(
        f"CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC '{topic}') "
        "WITH (TIMESTAMP INTERVAL '50 ms')"
    )
    upsert = "FROM SOURCE s KEY FORMAT TEXT VALUE FORMAT TEXT ENVELOPE UPSERT"
    for name in ("one", "other"):
        place.sql(f"CREATE TABLE {name} {upsert}")
    place.sql("CREATE TABLE log FROM SOURCE s FORMAT TEXT INCLUDE OFFSET")
    place.sql("CREATE MATERIALIZED VIEW counted AS SELECT text, count(*) AS n FROM one GROUP BY 1")
    send(kafka, topic, *((b"%d" % n, b"second", 0) for n in range(5)))
    becomes(place, "SELECT count(*) FROM log", [[25]])
    # Each table begins at the topic's beginning, and may be behind the others there.
    for name in ("one", "other"):
        becomes(place, f"SELECT count(*) FROM {name}", [[20]])
    # Retention takes the first messages: keys 10 to 19 have others, keys 5 to 9 have none.
    kafka.delete_records(topic, 0, 10)
    place.sql("ALTER SOURCE s RESNAPSHOT TABLES (one)")
    assert place.rows("SELECT text, n FROM counted ORDER BY 1") == [["first", 10], ["second", 5]]
    assert place.rows("SELECT count(*) FROM other") == [[20]]
    place.sql("ALTER SOURCE s RESNAPSHOT")
    assert place.rows("SELECT count(*), count(DISTINCT key) FROM other") == [[15, 15]]
    assert place.rows("SELECT count(*), min(offset) FROM log") == [[25, 0]]
    send(kafka, topic, (b"7", b"third", 0))
    becomes(place, "SELECT count(*) FROM one", [[16]])


def test_dead_letters_of_tables(place, kafka, cluster):
    topic = kafka.new_topic()
    send(kafka, topic, (b"a", b'{"n": 1}', 0), (b"a", b"no json", 0), (b"b", b'{"n": 2}', 0))
    place.sql(
        f"CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC '{topic}') "
        "WITH (TIMESTAMP INTERVAL '50 ms')"
    )
    place.sql("CREATE TABLE log FROM SOURCE s FORMAT TEXT INCLUDE OFFSET")
    assert place.rows("SELECT count(*) FROM log") == [[3]]
    place.sql("CREATE TABLE kept_dead_letters (is_taken BOOLEAN)")
    place.sql(
        "CREATE TABLE kept (n INT) FROM SOURCE s KEY FORMAT TEXT VALUE FORMAT JSON "
        "ENVELOPE UPSERT ON ERROR DEAD LETTER"
    )
    letters = "SELECT offset, CAST(key AS STRING), CAST(value AS STRING) FROM kept_dead_letters_1"
    assert place.rows(letters) == [[1, "a", "no json"]]
    assert place.rows("SELECT key, n FROM kept ORDER BY 1") == [["a", 1], ["b", 2]]
    place.sql("CREATE MATERIALIZED VIEW dead AS SELECT count(*) AS n FROM kept_dead_letters_1")
    send(kafka, topic, (b"c", b"[]", 0), (b"d", b'{"n": 4}', 0))
    becomes(place, "SELECT count(*) FROM log", [[5]])
    assert place.rows("SELECT n FROM dead") == [[2]]
    place.sql("ALTER SOURCE s RESNAPSHOT")
    assert place.rows("SELECT n FROM dead") == [[2]]
    told = "SELECT type, status FROM mz_internal.mz_source_statuses WHERE name LIKE '%letters_1'"
    assert place.rows(told) == [["subsource", "running"]]
    place.sql(f"ALTER SOURCE s SET CLUSTER {cluster}")
    placed = (
        "SELECT DISTINCT c.name FROM mz_catalog.mz_sources s JOIN mz_catalog.mz_clusters c "
        "ON s.cluster_id = c.id WHERE s.name IN ('s', 'kept_dead_letters_1')"
    )
    assert place.rows(placed) == [[cluster]]
    for statement, condition in (
        ("INSERT INTO kept_dead_letters_1 SELECT * FROM kept_dead_letters_1", "READ_ONLY_RELATION"),
        ("CREATE TABLE t FROM SOURCE kept_dead_letters_1 FORMAT TEXT", "WRONG_KIND"),
        ("DROP TABLE kept", "DEPENDENT_OBJECTS"),
    ):
        with pytest.raises(SqlError, match=f"SLACKWATER_{condition}"):
            place.sql(statement)
    place.sql("DROP MATERIALIZED VIEW dead")
    place.sql("ALTER TABLE kept RENAME TO renamed")
    place.sql("ALTER SOURCE kept_dead_letters_1 RENAME TO bad")
    send(kafka, topic, (b"e", b"{", 0))
    becomes(place, "SELECT count(*) FROM bad", [[3]])
    assert "ON ERROR DEAD LETTER" in place.rows("SHOW CREATE TABLE renamed")[0][0]
    place.sql("DROP TABLE renamed")
    with pytest.raises(SqlError, match="TABLE_OR_VIEW_NOT_FOUND"):
        place.rows("SELECT * FROM bad")
    place.sql("DROP SOURCE s CASCADE")


def test_what_tables_of_topics_refuse(place, kafka):
    topic = kafka.new_topic()
    place.sql(f"CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC '{topic}')")
    place.sql(f"CREATE SOURCE whole FROM KAFKA CONNECTION k (TOPIC '{topic}') FORMAT TEXT")
    for statement, condition in (
        ("CREATE TABLE t FROM SOURCE s", "SLACKWATER_SYNTAX_ERROR"),
        ("CREATE TABLE t FROM SOURCE s (REFERENCE x) FORMAT TEXT", "SLACKWATER_UNKNOWN_REFERENCE"),
        ("CREATE TABLE t FROM SOURCE whole FORMAT TEXT", "SLACKWATER_UNSUPPORTED"),
        ("ALTER SOURCE s RESNAPSHOT", "SLACKWATER_UNSUPPORTED"),
        ("ALTER SOURCE whole RESNAPSHOT", "SLACKWATER_UNSUPPORTED"),
    ):
        with pytest.raises(SqlError, match=condition):
            place.sql(statement)
    place.sql("CREATE TABLE t FROM SOURCE s FORMAT TEXT")
    for statement in ("ALTER SOURCE s RESNAPSHOT", "ALTER SOURCE s RESNAPSHOT TABLES (t)"):
        with pytest.raises(SqlError, match="rows have no keys to tell"):
            place.sql(statement)
    with pytest.raises(SqlError, match="SLACKWATER_WRONG_KIND"):
        place.sql("ALTER SOURCE s RESNAPSHOT TABLES (whole)")
    for statement in (
        "INSERT INTO t VALUES ('a')",
        "DELETE FROM t WHERE text = 'a'",
        "UPDATE t SET text = 'b'",
        "MERGE INTO t USING (SELECT 'a' AS x) u ON t.text = u.x WHEN MATCHED THEN DELETE",
        "TRUNCATE TABLE t",
    ):
        with pytest.raises(SqlError, match="SLACKWATER_READ_ONLY_RELATION"):
            place.sql(statement)
    with pytest.raises(SqlError, match="SLACKWATER_UNSUPPORTED"):
        place.sql("ALTER TABLE t ADD COLUMN x INT")
