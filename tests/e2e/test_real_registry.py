"""Sources and sinks with a schema registry that others have written."""

from __future__ import annotations

import pytest
from tests.support.applications.application import SqlError
from tests.support.applications.awaited import becomes
from tests.support.kafka.apicurio import apicurio as apicurio
from tests.support.kafka.protobuf import framed, written
from tests.support.kafka.sending import send
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

EACH_50_MS = "WITH (TIMESTAMP INTERVAL '50 ms')"
UNITS = 'syntax = "proto3"; package shop; message Unit { string name = 1; }'
ORDER = """
syntax = "proto3";
package shop;
import "units.proto";
message Order { int64 id = 1; Unit unit = 2; }
"""
MORE = ORDER.replace("unit = 2;", "unit = 2; repeated double prices = 3;")


def alone(text):
    """The text with what it imports in it, to write messages by."""
    unit = UNITS.partition("package shop;")[2]
    return text.replace('import "units.proto";', unit)


@pytest.mark.nightly
def test_a_registry_of_others(workplace, kafka, apicurio):
    """A sink and a source of Avro, what the registry refuses, and a source of Protobuf."""
    place, topic = workplace, kafka.new_topic()
    broker = f"BROKER '{kafka.address}', SECURITY PROTOCOL 'PLAINTEXT'"
    place.sql(f"CREATE CONNECTION k TO KAFKA ({broker}) WITH (VALIDATE = false)")
    place.sql(f"CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL '{apicurio.address}')")
    avro = "AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r"
    place.sql("CREATE TABLE t (k BIGINT NOT NULL, v STRING, d DECIMAL(9, 2)) COMMENT 'of the test'")
    place.sql("INSERT INTO t VALUES (1, 'a', 1.5), (2, NULL, NULL)")
    place.sql(
        f"CREATE SINK written FROM t INTO KAFKA CONNECTION k (TOPIC '{topic}') KEY (k) FORMAT "
        f"{avro} (VALUE COMPATIBILITY LEVEL 'BACKWARD', NULL DEFAULTS) ENVELOPE UPSERT"
    )
    place.sql(
        f"CREATE SOURCE back FROM KAFKA CONNECTION k (TOPIC '{topic}') FORMAT {avro} "
        f"INCLUDE KEY AS id ENVELOPE UPSERT {EACH_50_MS}"
    )
    becomes(place, "SELECT id, v, d FROM back", [[1, "a", "1.50"], [2, None, None]])
    place.sql("DELETE FROM t WHERE k = 1")
    becomes(place, "SELECT id, k, v, d FROM back", [[2, 2, None, None]])
    protobuf = avro.replace("AVRO", "PROTOBUF")
    described = kafka.new_topic()
    place.sql(
        f"CREATE SINK described FROM t INTO KAFKA CONNECTION k (TOPIC '{described}') KEY (k) "
        f"FORMAT {protobuf} (VALUE COMPATIBILITY LEVEL 'BACKWARD', PROTOBUF VALUE FULLNAME "
        "'shop.Row') ENVELOPE UPSERT"
    )
    place.sql(
        f"CREATE SOURCE read FROM KAFKA CONNECTION k (TOPIC '{described}') FORMAT {protobuf} "
        f"INCLUDE KEY AS id ENVELOPE UPSERT {EACH_50_MS}"
    )
    becomes(place, "SELECT * FROM read", [[2, 2, None, None]])
    place.sql("INSERT INTO t VALUES (0, '', 0)")
    becomes(place, "SELECT * FROM read ORDER BY id", [[0, 0, "", "0.00"], [2, 2, None, None]])
    place.sql("CREATE TABLE other (k BIGINT NOT NULL, v INT NOT NULL)")
    with pytest.raises(SqlError, match="SLACKWATER_SCHEMA_REFUSED") as caught:
        place.sql(
            f"CREATE SINK refused FROM other INTO KAFKA CONNECTION k (TOPIC '{topic}') KEY (k) "
            f"FORMAT {avro} ENVELOPE UPSERT"
        )
    with pytest.raises(SqlError, match="SLACKWATER_SCHEMA_REFUSED"):
        place.sql(
            f"CREATE SINK refused FROM other INTO KAFKA CONNECTION k (TOPIC '{described}') KEY (k) "
            f"FORMAT {protobuf} ENVELOPE UPSERT"
        )
    assert f"{topic}-value" in caught.value.message
    with pytest.raises(SqlError, match="SLACKWATER_UNKNOWN_SCHEMA"):
        place.sql(
            f"CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC '{topic}') FORMAT {avro} "
            "VALUE STRATEGY ID 999999"
        )
    orders = kafka.new_topic()
    apicurio.register(f"{orders}-units", UNITS, "PROTOBUF")
    first = apicurio.register(f"{orders}-value", ORDER, "PROTOBUF", units=f"{orders}-units")
    order = written(alone(ORDER), "shop.Order", id=1, unit={"name": "kg"})
    send(kafka, orders, (b"a", framed(first, order)))
    place.sql(
        f"CREATE SOURCE orders FROM KAFKA CONNECTION k (TOPIC '{orders}') KEY FORMAT TEXT VALUE "
        "FORMAT PROTOBUF USING CONFLUENT SCHEMA REGISTRY CONNECTION r ENVELOPE UPSERT "
        f"{EACH_50_MS}"
    )
    assert place.rows("SELECT key, id, unit.name FROM orders") == [["a", 1, "kg"]]
    second = apicurio.register(f"{orders}-value", MORE, "PROTOBUF", units=f"{orders}-units")
    more = written(alone(MORE), "shop.Order", id=2, prices=[0.5])
    send(kafka, orders, (b"b", framed(second, more)), (b"a", None))
    becomes(place, "SELECT key, id, unit FROM orders", [["b", 2, None]])
    place.sql("ALTER SOURCE orders REFRESH SCHEMA")
    send(kafka, orders, (b"c", framed(second, more)))
    becomes(place, "SELECT key, CAST(2 * prices[0] AS INT) FROM orders", [["b", None], ["c", 1]])
    # An Avro schema's id: the message is none.
    number = apicurio.register(f"{topic}-avro", '"long"', "AVRO")
    send(kafka, orders, (b"c", framed(number, more)))

    def reason():
        try:
            place.rows("SELECT * FROM orders")
        except SqlError as error:
            return error.message
        return None

    assert "of the kind AVRO" in wait_until(reason, what="the error is there")
