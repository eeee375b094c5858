"""Sources that follow tables by the messages of Debezium, in topics of a real broker."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from tests.e2e.test_avro_topics import AVRO, fails, source
from tests.e2e.test_avro_topics import place as place
from tests.support.applications.application import SqlError
from tests.support.applications.awaited import becomes
from tests.support.kafka.sending import send
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": ["null", DECIMAL], "default": None},
        {"name": "at", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}},
    ],
}


def envelope(*source):
    """The schema of messages whose source block has these fields."""
    block = [{"name": name, "type": kind} for name, kind in source]
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "srv.shop.orders",
        "fields": [
            {"name": "before", "type": ["null", ROW], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": {"type": "record", "name": "Source", "fields": block}},
            {"name": "op", "type": "string"},
        ],
    }


def test_a_table_in_avro(place, cluster, kafka, registry):
    """It is read first, then followed, while the block about its source changes."""
    topic = kafka.new_topic()
    key = registry.register(f"{topic}-key", KEY)
    first = registry.register(f"{topic}-value", envelope(("ts_ms", "long")))
    later = registry.register(f"{topic}-value", envelope(("lsn", "string"), ("tx", "int")))

    def message(number, op, row, **block):
        after = None if row is None else {"id": number, **row}
        value = {"before": None, "after": after, "source": block, "op": op}
        schema = first if "ts_ms" in block else later
        keyed = None if number is None else registry.message(key, {"id": number})
        return keyed, registry.message(schema, value)

    send(
        kafka,
        topic,
        message(1, "r", {"price": Decimal("12.50"), "at": 0}, ts_ms=1),
        message(2, "r", {"price": None, "at": 1_000_000}, ts_ms=1),
        message(3, "c", {"price": None, "at": 3}, lsn="a", tx=1),
    )
    source(
        place, topic, f"FORMAT {AVRO} INCLUDE OFFSET ENVELOPE DEBEZIUM", f"s IN CLUSTER {cluster}"
    )
    place.sql(
        f"CREATE MATERIALIZED VIEW v IN CLUSTER {cluster} AS "
        "SELECT id, price, CAST(timestamp_micros(at) AS STRING) AS at FROM s WHERE id < 3"
    )
    assert sorted(place.rows("SELECT id, price, offset FROM s"), key=repr) == [
        [1, "12.50", 0],
        [2, None, 1],
        [3, None, 2],
    ]
    assert place.rows("SELECT id, unix_micros(CAST(at AS TIMESTAMP)) FROM v ORDER BY id") == [
        [1, 0],
        [2, 1_000_000],
    ]
    send(
        kafka,
        topic,
        message(1, "d", None, lsn="b", tx=2),
        (message(1, "d", None, ts_ms=1)[0], None),
    )
    send(kafka, topic, message(2, "u", {"price": Decimal("-0.01"), "at": 2}, lsn="b", tx=2))
    becomes(place, "SELECT id, price FROM s", [[2, "-0.01"], [3, None]])
    becomes(place, "SELECT id, price FROM v", [[2, "-0.01"]])
    # An update without a row is none, until its key has a good one; also for who begins anew.
    send(kafka, topic, message(3, "u", None, lsn="c", tx=3))
    wait_until(lambda: fails(place), what="the error is there")
    place.sql(f"ALTER CLUSTER {cluster} SET (REPLICATION FACTOR 0)")
    place.sql(f"ALTER CLUSTER {cluster} SET (REPLICATION FACTOR 1)")
    send(kafka, topic, message(3, "u", {"price": Decimal("3.00"), "at": 3}, lsn="c", tx=3))
    becomes(place, "SELECT id, price FROM s", [[2, "-0.01"], [3, "3.00"]])
    send(kafka, topic, message(None, "t", None, lsn="d", tx=4))
    becomes(place, "SELECT id, price FROM s", [])
    send(kafka, topic, message(4, "c", {"price": None, "at": 0}, lsn="e", tx=5))
    place.sql("ALTER SOURCE s RESNAPSHOT")
    becomes(place, "SELECT id, price FROM v UNION ALL SELECT id, price FROM s", [[4, None]])
    ((_, shown),) = place.rows("SHOW CREATE SOURCE s")
    assert "ENVELOPE DEBEZIUM" in shown


def test_a_table_in_json(place, kafka):
    """Half of the messages have their schema beside them, as Connect's converter is set."""
    topic = kafka.new_topic()

    def message(number, change):
        key, wrapped = {"id": number}, {"schema": {"type": "struct"}}
        if number % 2:
            key, change = {**wrapped, "payload": key}, {**wrapped, "payload": change}
        return json.dumps(key, separators=(",", ":")), json.dumps(change)

    send(
        kafka,
        topic,
        *(message(n, {"op": "r", "after": {"id": n, "name": f"n{n}"}}) for n in (1, 2, 3)),
        message(1, {"op": "d", "before": {"id": 1}, "after": None}),
        (b"x", b'{"id": 4}'),
    )
    source(
        place,
        topic,
        "KEY FORMAT JSON VALUE FORMAT JSON ENVELOPE DEBEZIUM ON ERROR DEAD LETTER",
        "s (id INT NOT NULL, name STRING)",
    )
    assert place.rows("SELECT * FROM s ORDER BY id") == [
        ['{"id":2}', 2, "n2"],
        ['{"id":3}', 3, "n3"],
    ]
    assert place.rows("SELECT reason FROM s_dead_letters") == [
        ["a key cannot be read: it is not JSON: Expecting value: line 1 column 1 (char 0)"]
    ]


def test_schemas_that_are_none_of_debezium(place, kafka, registry):
    topic = kafka.new_topic()
    registry.register(f"{topic}-key", KEY)
    registry.register(f"{topic}-value", ROW)
    with pytest.raises(SqlError, match="SLACKWATER_AVRO_SCHEMA") as caught:
        source(place, topic, f"FORMAT {AVRO} ENVELOPE DEBEZIUM")
    assert "the record has no field after" in caught.value.message


def test_a_column_that_the_table_has_got(place, kafka, registry):
    """The envelope stays, while the row in it has a field more."""
    topic = kafka.new_topic()
    key = registry.register(f"{topic}-key", KEY)
    schema = envelope(("ts_ms", "long"))
    first = registry.register(f"{topic}-value", schema)

    def message(schema, number, **row):
        after = {"id": number, "price": None, "at": 0, **row}
        value = {"before": None, "after": after, "source": {"ts_ms": 1}, "op": "c"}
        return registry.message(key, {"id": number}), registry.message(schema, value)

    send(kafka, topic, message(first, 1))
    source(place, topic, f"FORMAT {AVRO} ENVELOPE DEBEZIUM")
    assert place.rows("SELECT * FROM s") == [[1, None, 0]]
    added = {"name": "note", "type": ["null", "string"], "default": None}
    row = {**ROW, "fields": [*ROW["fields"], added]}
    before = {**schema["fields"][0], "type": ["null", row]}
    later = registry.register(
        f"{topic}-value", {**schema, "fields": [before, *schema["fields"][1:]]}
    )
    place.sql("ALTER SOURCE s REFRESH SCHEMA")
    send(kafka, topic, message(later, 2, note="x"), message(first, 3))
    becomes(place, "SELECT * FROM s", [[1, None, 0, None], [2, None, 0, "x"], [3, None, 0, None]])
