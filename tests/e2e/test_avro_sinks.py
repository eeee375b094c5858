"""Sinks that write Avro into topics of a real broker, with a schema registry."""

from __future__ import annotations

import json
from io import BytesIO

import fastavro
import pytest
from tests.e2e.test_avro_topics import place as place
from tests.e2e.test_avro_topics import source
from tests.e2e.test_kafka_sinks import reader as reader
from tests.support.applications.application import SqlError
from tests.support.applications.awaited import becomes
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

AVRO = "AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r"
ROWS = """
  (1, 'a', 12.50, DATE '2024-02-29', TIMESTAMP '2024-02-29 01:02:03.000004Z',
   TIMESTAMP_NTZ '0001-01-01 00:00:00', array(1, NULL), map('x', DATE '1970-01-01'),
   named_struct('p q', 1, 'r', named_struct('s', X'00FF'))),
  (2, NULL, NULL, date_sub(DATE '0001-01-01', 500), timestamp_micros(-99999999999999999), NULL,
   NULL, map(), NULL),
  (3, '', -0.01, NULL, NULL, TIMESTAMP_NTZ '9999-12-31 23:59:59.999999', array(), NULL,
   named_struct('p q', NULL, 'r', NULL))
"""


def table(place, name="t"):
    place.sql(
        f"CREATE TABLE {name} (`the key` BIGINT NOT NULL, `n-1` STRING, d DECIMAL(20, 2), "
        "day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, list ARRAY<INT>, `2m` MAP<STRING, DATE>, "
        "s STRUCT<`p q`: INT, r: STRUCT<s: BINARY>>)"
    )
    place.sql(f"INSERT INTO {name} VALUES {ROWS}")


def sink(place, topic, rest, name="s", relation="t"):
    place.sql(
        f"CREATE SINK {name} FROM {relation} INTO KAFKA CONNECTION k (TOPIC '{topic}') {rest}"
    )


def value(registry, message):
    """The value of a message, as fastavro alone reads it."""
    number = int.from_bytes(message[1:5], "big")
    schema = fastavro.parse_schema(json.loads(registry.schemas[number - registry.first]))
    return fastavro.schemaless_reader(BytesIO(message[5:]), schema, None)


def same(place, read, written):
    """Waits until the source `back` has the rows of the table."""
    back, there = f"SELECT {read} FROM back", f"SELECT {written} FROM t"
    both = f"({back} EXCEPT ALL {there}) UNION ALL ({there} EXCEPT ALL {back})"
    becomes(place, f"SELECT count(*) FROM ({both})", [[0]])


TEXTS = (
    "the_key, n_1, d, day, at, local, list, to_json(_2m), to_json(s)",
    "`the key`, `n-1`, d, day, at, local, list, to_json(`2m`), replace(to_json(s), 'p q', 'p_q')",
)


def test_a_source_reads_what_a_sink_writes(place, kafka, registry):
    """Names that Avro does not allow, values of all kinds, changes and deletions."""
    topic = kafka.new_topic()
    table(place)
    sink(place, topic, f"KEY (`the key`) FORMAT {AVRO} ENVELOPE UPSERT")
    source(place, topic, f"FORMAT {AVRO} INCLUDE KEY AS id ENVELOPE UPSERT", "back")
    same(place, *TEXTS)
    assert sorted(place.rows("SELECT id, the_key FROM back")) == [[1, 1], [2, 2], [3, 3]]
    place.sql("UPDATE t SET `n-1` = 'other', s = NULL WHERE `the key` = 1")
    place.sql("DELETE FROM t WHERE `the key` = 2")
    same(place, *TEXTS)
    # Each schema is there once, however often it was given.
    assert {name: len(ids) for name, ids in registry.subjects.items()} == {
        f"{topic}-key": 1,
        f"{topic}-value": 1,
    }
    (found,) = place.rows(
        "SELECT s.format, s.key_format FROM slackwater.mz_catalog.mz_sinks s "
        f"JOIN slackwater.mz_catalog.mz_kafka_sinks k ON k.id = s.id WHERE topic = '{topic}'"
    )
    assert found == ["avro", "avro"]


def test_changes_with_the_row_before_and_after(place, kafka, registry, reader):
    """A sink with ENVELOPE DEBEZIUM, and a source with it."""
    topic = kafka.new_topic()
    table(place)
    options = (
        "AVRO KEY FULLNAME 'shop.Key', AVRO VALUE FULLNAME 'shop.Change', NULL DEFAULTS = true, "
        "KEY COMPATIBILITY LEVEL 'NONE', VALUE COMPATIBILITY LEVEL 'FULL'"
    )
    registry.levels[f"{topic}-key"] = "BACKWARD"
    sink(place, topic, f"KEY (`the key`) FORMAT {AVRO} ({options}) ENVELOPE DEBEZIUM")
    assert registry.levels == {f"{topic}-key": "BACKWARD", f"{topic}-value": "FULL"}
    source(place, topic, f"FORMAT {AVRO} ENVELOPE DEBEZIUM", "back")
    same(place, *TEXTS)
    place.sql("UPDATE t SET d = 7.00 WHERE `the key` = 3")
    place.sql("DELETE FROM t WHERE `the key` = 1")
    same(place, *TEXTS)
    messages = reader(topic).wait(lambda found: len(found) >= 5, "five messages")
    update, delete = (value(registry, each.value) for each in messages[3:])
    assert [str(update[each]["d"]) for each in ("before", "after")] == ["-0.01", "7.00"]
    assert (delete["before"]["the_key"], delete["after"]) == (1, None)
    assert value(registry, messages[4].key) == {"the_key": 1}
    schema = json.loads(registry.schemas[registry.subjects[f"{topic}-value"][0] - registry.first])
    assert schema["name"] == "shop.Change"
    assert schema["fields"][0]["default"] is None
    ((_, shown),) = place.rows("SHOW CREATE SINK s")
    assert ".`r` (AVRO KEY FULLNAME 'shop.Key', AVRO VALUE FULLNAME 'shop.Change', " in shown
    with pytest.raises(SqlError, match="SLACKWATER_DEPENDENT_OBJECTS"):
        place.sql("DROP CONNECTION r")


def test_formats_may_be_mixed(place, kafka, registry, reader):
    one, other = kafka.new_topic(), kafka.new_topic()
    place.sql("CREATE TABLE t (k STRING, v INT)")
    place.sql("INSERT INTO t VALUES ('a', 1)")
    sink(place, one, f"KEY (k) KEY FORMAT TEXT VALUE FORMAT {AVRO} ENVELOPE UPSERT", "a")
    sink(place, other, f"KEY (k) KEY FORMAT {AVRO} VALUE FORMAT JSON ENVELOPE DEBEZIUM", "b")
    place.sql("DELETE FROM t")
    found = reader(one).wait(lambda found: len(found) >= 2, "two messages")
    assert [each.key for each in found] == [b"a", b"a"]
    assert value(registry, found[0].value) == {"k": "a", "v": 1}
    assert found[1].value is None
    found = reader(other).wait(lambda found: len(found) >= 2, "two messages")
    assert [value(registry, each.key) for each in found] == [{"k": "a"}] * 2
    assert found[1].value == b'{"before":{"k":"a","v":1},"after":null}'
    assert list(registry.subjects) == [f"{one}-value", f"{other}-key"]
    place.sql("ALTER CONNECTION r RENAME TO registry")
    for name in ("a", "b"):
        ((_, shown),) = place.rows(f"SHOW CREATE SINK {name}")
        assert "CONFLUENT SCHEMA REGISTRY CONNECTION `slackwater`" in shown
        assert ".`registry` " in shown


def statuses(place):
    return place.rows("SELECT error FROM slackwater.mz_internal.mz_sink_statuses")


def becomes_stalled(place, condition):
    """Waits until the only sink says so; what it says."""
    return wait_until(
        lambda: next((e for (e,) in statuses(place) if e and condition in e), None),
        what=f"the sink says {condition}",
    )


def test_a_registry_that_is_away_or_refuses_stalls_the_sink(
    place, cluster, kafka, registry, reader
):
    """What it says is told without the password, and each message is there once in the end."""
    topic = kafka.new_topic()
    place.sql("CREATE SECRET pw AS 'correct horse'")
    place.sql("ALTER CONNECTION r SET (USERNAME 'u', PASSWORD SECRET pw) WITH (VALIDATE = false)")
    place.sql("CREATE TABLE t (k INT, v STRING)")
    place.sql("INSERT INTO t VALUES (1, 'a')")
    path = f"/subjects/{topic}-value/versions"
    rest = f"KEY (k) FORMAT {AVRO} ENVELOPE UPSERT"
    refusal = 409, {"error_code": 409, "message": "no field for correct horse"}
    for answer, condition in (
        (refusal, "SLACKWATER_SCHEMA_REFUSED"),
        ((422, b""), "SLACKWATER_SCHEMA_REFUSED"),
        ((503, b""), "SLACKWATER_REGISTRY_UNREACHABLE"),
        ((200, {"id": "x"}), "SLACKWATER_REGISTRY_UNREACHABLE"),
    ):
        registry.answers[path] = answer
        with pytest.raises(SqlError, match=condition) as caught:
            sink(place, topic, rest, f"s IN CLUSTER {cluster}")
        assert "horse" not in caught.value.message
    del registry.answers[path]
    sink(place, topic, rest, f"s IN CLUSTER {cluster}")
    follower = reader(topic)
    follower.wait(len, "the first message")
    place.sql(f"ALTER CLUSTER {cluster} SET (REPLICATION FACTOR 0)")
    registry.answers[path] = 503, b"away"
    place.sql(f"ALTER CLUSTER {cluster} SET (REPLICATION FACTOR 1)")
    place.sql("INSERT INTO t VALUES (2, 'b')")
    becomes_stalled(place, "SLACKWATER_REGISTRY_UNREACHABLE")
    del registry.answers[path]
    follower.wait(lambda found: len(found) >= 2, "the row of meanwhile")
    # Another relation, whose schema is refused at first.
    place.sql(
        f"CREATE MATERIALIZED VIEW w IN CLUSTER {cluster} AS SELECT k, v, k + 1 AS more FROM t"
    )
    registry.answers[path] = refusal
    place.sql("ALTER SINK s SET FROM w")
    told = becomes_stalled(place, "SLACKWATER_SCHEMA_REFUSED")
    assert "no field for <redacted>" in told
    place.sql("INSERT INTO t VALUES (3, 'c')")
    del registry.answers[path]
    messages = follower.wait(lambda found: len(found) >= 3, "the other relation's row")
    assert [value(registry, each.value) for each in messages] == [
        {"k": 1, "v": "a"},
        {"k": 2, "v": "b"},
        {"k": 3, "v": "c", "more": 4},
    ]
    assert len(registry.subjects[f"{topic}-value"]) == 2


def test_columns_without_a_schema(place, kafka):
    topic = kafka.new_topic()
    place.sql("CREATE TABLE t (`a-b` INT, `a b` INT, m MAP<INT, INT>)")
    place.sql("CREATE MATERIALIZED VIEW w AS SELECT `a-b`, m FROM t")
    for relation, reason in (("t", "a-b and a b would both be a_b"), ("w", "keys of maps")):
        with pytest.raises(SqlError, match="SLACKWATER_INVALID_OPTION") as caught:
            sink(place, topic, f"FORMAT {AVRO} ENVELOPE DEBEZIUM", "s", relation)
        assert reason in caught.value.message


def test_schemas_say_what_their_relation_says(place, kafka, registry):
    """Comments, what is said of both schemas, and what is said of one: the last one counts."""
    topic = kafka.new_topic()
    place.sql(
        "CREATE TABLE t (k INT NOT NULL COMMENT 'from the table', v STRING, w INT) COMMENT 'all'"
    )
    place.sql("COMMENT ON COLUMN t.v IS 'of the value'")
    place.sql("COMMENT ON COLUMN t.w IS 'hidden'")
    sink(
        place,
        topic,
        f"KEY (k) FORMAT {AVRO} (DOC ON COLUMN t.K = 'of both',"
        " KEY DOC ON COLUMN t.k = 'of the key', VALUE DOC ON TYPE t = 'it\\'s a row',"
        " DOC ON COLUMN t.w = '') ENVELOPE DEBEZIUM",
    )
    key, value_schema = (json.loads(each) for each in registry.schemas)
    assert (key["doc"], [each.get("doc") for each in key["fields"]]) == ("all", ["of the key"])
    row = value_schema["fields"][0]["type"][1]
    assert (row["doc"], [each.get("doc") for each in row["fields"]]) == (
        "it's a row",
        ["of both", "of the value", None],
    )
    place.sql("INSERT INTO t VALUES (1, 'a', 2)")
    source(place, topic, f"FORMAT {AVRO} ENVELOPE DEBEZIUM", "back")
    becomes(place, "SELECT k, v, w FROM back", [[1, "a", 2]])
    ((_, shown),) = place.rows("SHOW CREATE SINK s")
    schema = shown.partition(" FROM `slackwater`.`")[2].partition("`")[0]
    assert f"VALUE DOC ON TYPE `slackwater`.`{schema}`.`t` = 'it\\'s a row'" in shown
    place.sql("DROP SINK s")
    remade = shown.replace(f"TOPIC '{topic}'", f"TOPIC '{topic}-again'")
    place.sql(remade)
    assert len(registry.schemas) == 2
    place.sql("CREATE TABLE other (k INT NOT NULL, v STRING, w INT) COMMENT 'other'")
    place.sql("ALTER SINK s SET FROM other")
    ((_, shown),) = place.rows("SHOW CREATE SINK s")
    assert f"VALUE DOC ON TYPE `slackwater`.`{schema}`.`other` = 'it\\'s a row'" in shown
    for docs, reason in (
        ("DOC ON TYPE other = 'x'", "the sink writes slackwater."),
        ("DOC ON COLUMN t.gone = 'x'", "has no such column"),
        ("KEY DOC ON COLUMN t.v = 'x'", "the key does not have this column"),
    ):
        with pytest.raises(SqlError, match="SLACKWATER_INVALID_OPTION") as caught:
            sink(place, topic, f"KEY (k) FORMAT {AVRO} ({docs}) ENVELOPE UPSERT", "wrong")
        assert reason in caught.value.message
