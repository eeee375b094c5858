"""Tables of MySQL as Debezium's connector wrote them: its messages, sent again to a real broker.

`mysql_messages.jsonl` was recorded, by `make debezium`, from MariaDB 10.11 that called itself MySQL
5.7, through the connector for MySQL of Debezium 3.6.1 in Kafka Connect 4.3.1. A line is topic, key
and value. Of two connectors one has JSON without schemas, the other one with them and other modes
of types.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.applications.awaited import becomes
from tests.support.kafka.sending import send

from slackwater.repr.relation import quote_string

pytestmark = pytest.mark.spark

RECORDED = Path(__file__).with_name("mysql_messages.jsonl")
TRUNCATE = '"op":"t"'


def recorded(connector):
    """Its messages: those of the first rows, those of changes, and those from TRUNCATE on."""
    lines = map(json.loads, RECORDED.read_text().splitlines())
    found = [(key, value) for topic, key, value in lines if topic == f"{connector}.shop.orders"]
    emptied = next(n for n, (_, value) in enumerate(found) if value and TRUNCATE in value)
    return found[:2], found[2:emptied], found[emptied:]


@pytest.fixture
def place(workplace, kafka):
    address = quote_string(kafka.address)
    workplace.sql(f"CREATE CONNECTION k TO KAFKA (BROKER {address}, SECURITY PROTOCOL PLAINTEXT)")
    return workplace


def source(place, topic, columns):
    place.sql(
        f"CREATE SOURCE s ({columns}) FROM KAFKA CONNECTION k (TOPIC '{topic}')"
        " KEY FORMAT JSON VALUE FORMAT JSON ENVELOPE DEBEZIUM WITH (TIMESTAMP INTERVAL '50 ms')"
    )


def test_rows_changes_and_types(place, kafka):
    """JSON without schemas, decimals as strings: what the page for users recommends."""
    topic = kafka.new_topic()
    rows, changes, emptied = recorded("bare")
    send(kafka, topic, *rows)
    source(
        place,
        topic,
        "id INT NOT NULL, customer STRING, amount DECIMAL(10, 2), made BIGINT, seen TIMESTAMP,"
        " day INT, at BIGINT, big BIGINT, flag SMALLINT, bits BINARY, doc STRING, kind STRING",
    )
    place.sql(
        "CREATE MATERIALIZED VIEW v AS SELECT id, customer, amount,"
        " unix_micros(timestamp_micros(made)) AS made, unix_millis(seen) AS seen,"
        " CAST(date_from_unix_date(day) AS STRING) AS day, at, "
        "CAST(big AS DECIMAL(20, 0)) + IF(big < 0, 18446744073709551616, 0) AS big,"
        " flag = 1 AS flag, hex(bits) AS bits, get_json_object(doc, '$.a') AS doc, kind FROM s"
    )
    first = [1_700_000_000_000_001, 1_700_000_000_123, "2023-11-14", 45_296_789_000]
    values = [*first, "18446744073709551615", True, "00FF0102", "1", "a"]
    nothing = [None] * len(values)
    assert place.rows("SELECT * FROM v ORDER BY id") == [
        [1, "ann", "10.00", *values],
        [2, "bøb", "5.00", *nothing],
    ]
    # One is updated, one deleted, one gets another key, and the table another column.
    send(kafka, topic, *changes)
    greatest = ["9223372036854775807" if n == len(first) else None for n in range(len(values))]
    becomes(
        place,
        "SELECT * FROM v",
        [
            [1, "ann", "12.50", *values],
            [4, "cy", None, *greatest],
            [5, "dee", None, *nothing],
        ],
    )
    # TRUNCATE has no key and empties the table, and what comes behind it is there.
    send(kafka, topic, *emptied)
    becomes(place, "SELECT * FROM v", [[6, "eve", "-0.05", *nothing]])


def test_schemas_beside_values_and_other_modes_of_types(place, kafka):
    """Decimals and unsigned numbers as bytes, in JSON base64; times in milliseconds."""
    topic = kafka.new_topic()
    rows, changes, emptied = recorded("full")
    send(kafka, topic, *rows, *changes)
    source(place, topic, "id INT NOT NULL, amount BINARY, made BIGINT, day INT, at INT, big STRING")
    assert place.rows("SELECT id, hex(amount), made, day, at, big FROM s ORDER BY id") == [
        [1, "04E2", 1_700_000_000_000, 19_675, 45_296_789, "AP//////////"],
        [4, None, None, None, None, "f/////////8="],
        [5, None, None, None, None, None],
    ]
    send(kafka, topic, *emptied)
    becomes(place, "SELECT id, hex(amount) FROM s", [[6, "FB"]])
