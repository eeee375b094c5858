"""Sinks that write Protobuf into topics of a real broker, with a schema registry."""

from __future__ import annotations

import pytest
from tests.e2e.test_avro_sinks import sink
from tests.e2e.test_avro_topics import place as place
from tests.e2e.test_avro_topics import source
from tests.e2e.test_kafka_sinks import reader as reader
from tests.support.applications.application import SqlError
from tests.support.applications.awaited import becomes
from tests.support.kafka.protobuf import classes

pytestmark = pytest.mark.spark

PROTOBUF = "PROTOBUF USING CONFLUENT SCHEMA REGISTRY CONNECTION r"
COLUMNS = (
    "`the key` BIGINT NOT NULL, `n-1` STRING, d DECIMAL(20, 2), day DATE, at TIMESTAMP, "
    "local TIMESTAMP_NTZ, n INT NOT NULL, s STRUCT<`p q`: INT, r: STRUCT<s: BINARY>>"
)
ROWS = """
  (1, 'a', 12.50, DATE '2024-02-29', TIMESTAMP '2024-02-29 01:02:03.000004Z',
   TIMESTAMP_NTZ '0001-01-01 00:00:00', -1,
   named_struct('p q', 1, 'r', named_struct('s', X'00FF'))),
  (2, NULL, NULL, date_sub(DATE '0001-01-01', 500), timestamp_micros(-99999999999999999), NULL, 0,
   NULL),
  (3, '', -0.01, make_date(12345, 6, 7), NULL, TIMESTAMP_NTZ '9999-12-31 23:59:59.999999', 7,
   named_struct('p q', NULL, 'r', NULL))
"""
BACK = (
    "SELECT the_key, n_1, CAST(d AS DECIMAL(20, 2)) AS d, CAST(day AS DATE) AS day, at, "
    "CAST(local AS TIMESTAMP_NTZ) AS local, n, to_json(s) AS s FROM back"
)
THERE = "SELECT * EXCEPT (s), replace(to_json(s), 'p q', 'p_q') AS s FROM t"


def same(place):
    """Waits until the source `back` has the rows of the table."""
    both = f"({BACK} EXCEPT ALL {THERE}) UNION ALL ({THERE} EXCEPT ALL {BACK})"
    becomes(place, f"SELECT count(*) FROM ({both})", [[0]])


def text_of(registry, subject):
    return registry.schemas[registry.subjects[subject][-1] - registry.first]


def test_a_source_reads_what_a_sink_writes(place, kafka, registry, reader):
    """Names that Protobuf does not allow, values of all kinds, changes, and later columns."""
    topic = kafka.new_topic()
    place.sql(f"CREATE TABLE t ({COLUMNS}) COMMENT 'what there is'")
    place.sql("COMMENT ON COLUMN t.n IS 'a number'")
    place.sql(f"INSERT INTO t VALUES {ROWS}")
    sink(place, topic, f"KEY (`the key`) FORMAT {PROTOBUF} ENVELOPE UPSERT")
    source(place, topic, f"FORMAT {PROTOBUF} INCLUDE KEY AS id ENVELOPE UPSERT", "back")
    same(place)
    assert sorted(place.rows("SELECT id, the_key FROM back")) == [[1, 1], [2, 2], [3, 3]]
    place.sql("UPDATE t SET `n-1` = 'other', s = NULL WHERE `the key` = 1")
    place.sql("DELETE FROM t WHERE `the key` = 2")
    same(place)
    assert {name: len(ids) for name, ids in registry.subjects.items()} == {
        f"{topic}-key": 1,
        f"{topic}-value": 1,
    }
    schema = text_of(registry, f"{topic}-value")
    assert "// what there is\nmessage Row {\n  int64 the_key = 1;\n" in schema
    assert "  // a number\n  int32 n = 7;\n" in schema
    # A column more has the next number; what is out keeps its own.
    place.sql("CREATE TABLE more AS SELECT *, 'x' AS more FROM t")
    place.sql("CREATE TABLE other AS SELECT 'x' AS more, * FROM t")
    with pytest.raises(SqlError, match="SLACKWATER_COLUMN_MISMATCH"):
        place.sql("ALTER SINK s SET FROM other")
    place.sql("ALTER SINK s SET FROM more")
    place.sql("UPDATE more SET n = 8 WHERE `the key` = 3")
    becomes(place, "SELECT n FROM back WHERE id = 3", [[8]])
    place.sql("ALTER SOURCE back REFRESH SCHEMA")
    place.sql("UPDATE more SET n = 9 WHERE `the key` = 3")
    becomes(place, "SELECT n, more FROM back WHERE id = 3", [[9, "x"]])


def test_changes_with_the_row_before_and_after(place, kafka, registry, reader):
    topic = kafka.new_topic()
    place.sql("CREATE TABLE t (k BIGINT NOT NULL, tags ARRAY<STRING>, at TIMESTAMP NOT NULL)")
    options = (
        "PROTOBUF KEY FULLNAME 'shop.Key', PROTOBUF VALUE FULLNAME 'shop.v1.Change', "
        "VALUE COMPATIBILITY LEVEL 'FULL', DOC ON TYPE t = 'a change'"
    )
    rest = f"KEY (k) FORMAT {PROTOBUF} ({options}) ENVELOPE DEBEZIUM"
    with pytest.raises(SqlError, match="array_compact"):
        sink(place, topic, rest)
    place.sql("CREATE VIEW compacted AS SELECT k, array_compact(tags) AS tags, at FROM t")
    place.sql("CREATE MATERIALIZED VIEW v AS SELECT * FROM compacted")
    sink(place, topic, rest.replace("TYPE t", "TYPE v"), relation="v")
    assert registry.levels == {f"{topic}-value": "FULL"}
    source(place, topic, f"FORMAT {PROTOBUF} ENVELOPE DEBEZIUM", "back")
    place.sql("INSERT INTO t VALUES (0, array('a', NULL, ''), TIMESTAMP '1970-01-01 00:00:00Z')")
    becomes(place, "SELECT k, array_join(tags, '+'), unix_micros(at) FROM back", [[0, "a+", 0]])
    place.sql("UPDATE t SET tags = NULL")
    becomes(place, "SELECT k, size(tags) FROM back", [[0, 0]])
    place.sql("DELETE FROM t")
    becomes(place, "SELECT * FROM back", [])
    messages = reader(topic).wait(lambda found: len(found) >= 3, "three messages")
    change = classes(text_of(registry, f"{topic}-value"))["shop.v1.Change"]
    insert, update, delete = (change.FromString(each.value[6:]) for each in messages)
    assert not insert.HasField("before")
    assert list(insert.after.tags) == ["a", ""]
    assert insert.after.HasField("at")
    assert (list(update.before.tags), list(update.after.tags)) == (["a", ""], [])
    assert not delete.HasField("after")
    assert (
        messages[0].value[:6]
        == b"\0" + registry.subjects[f"{topic}-value"][0].to_bytes(4, "big") + b"\0"
    )
    # What is the default is left out, as other writers of such keys do.
    assert messages[0].key[6:] == b""
    ((_, shown),) = place.rows("SHOW CREATE SINK s")
    assert ".`r` (PROTOBUF KEY FULLNAME 'shop.Key', PROTOBUF VALUE FULLNAME " in shown
    (found,) = place.rows(
        "SELECT s.format, s.key_format FROM slackwater.mz_catalog.mz_sinks s "
        f"JOIN slackwater.mz_catalog.mz_kafka_sinks k ON k.id = s.id WHERE topic = '{topic}'"
    )
    assert found == ["protobuf", "protobuf"]
