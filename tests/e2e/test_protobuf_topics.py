"""Sources that read Protobuf from topics of a real broker, with a schema registry or without."""

from __future__ import annotations

import pytest
from tests.e2e.test_avro_topics import EACH_50_MS, place
from tests.support.applications.application import SqlError
from tests.support.applications.awaited import becomes
from tests.support.kafka.protobuf import descriptors, framed, written
from tests.support.kafka.sending import send
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

__all__ = ["place"]

KEY = 'syntax = "proto3"; message Key { int64 id = 1; }'
ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
enum State { NEW = 0; PAID = 1; }
message Order {
  string customer = 1;
  optional int64 amount = 2;
  State state = 3;
  repeated string tags = 4;
  google.protobuf.Timestamp at = 5;
}
"""
PROTOBUF = "PROTOBUF USING CONFLUENT SCHEMA REGISTRY CONNECTION r"


def fails(place, query="SELECT * FROM s"):
    """The error of the query; None: it has none."""
    try:
        place.rows(query)
    except SqlError as error:
        return error.message
    return None


def test_keys_and_values_of_a_registry(place, cluster, kafka, registry):
    """Writers change their schema, and messages that are none are errors of their keys."""
    topic = kafka.new_topic()
    key = registry.register_protobuf(f"{topic}-key", KEY)
    value = registry.register_protobuf(f"{topic}-value", ORDER)

    def row(number, schema=value, text=ORDER, **order):
        return framed(key, written(KEY, "Key", id=number)), framed(
            schema, written(text, "shop.Order", **order)
        )

    send(
        kafka,
        topic,
        row(0, customer="ann", amount=0, state=1, tags=["a", "b"], at={"seconds": 60}),
        row(1, customer="bob"),
        row(2),
        (framed(key, b""), None),
    )
    place.sql(
        f"CREATE SOURCE s IN CLUSTER {cluster} FROM KAFKA CONNECTION k (TOPIC '{topic}') "
        f"FORMAT {PROTOBUF} ENVELOPE UPSERT {EACH_50_MS}"
    )
    rows = "SELECT id, customer, amount, state, array_join(tags, '+'), unix_micros(at) FROM s"
    bob, nobody = [1, "bob", None, "NEW", "", None], [2, "", None, "NEW", "", None]
    assert sorted(place.rows(rows)) == [bob, nobody]
    more = ORDER.replace("amount = 2;", "amount = 2; bool more = 9;")
    other = ORDER.replace("int64 amount", "string amount")
    with_more = registry.register_protobuf(f"{topic}-value", more)
    as_text = registry.register_protobuf(f"{topic}-value", other)
    send(kafka, topic, row(2, with_more, more, customer="eve", amount=7, more=True))
    becomes(place, rows, [bob, [2, "eve", 7, "NEW", "", None]])
    key_of_1 = row(1)[0]
    for bad, reason in (
        (row(1, as_text, other, amount="x")[1], "amount is string, and not int64"),
        (framed(999, b""), "the registry has no schema 999"),
        (framed(value, b"\x0a\xff"), "it is no message shop.Order"),
        (framed(key, b""), "it is a message Key, and not shop.Order"),
        (b"no Protobuf", "it does not begin with a zero byte"),
    ):
        send(kafka, topic, (key_of_1, bad))
        assert reason in wait_until(lambda: fails(place), what="the error is there")
        send(kafka, topic, (key_of_1, None))
        becomes(place, rows, [[2, "eve", 7, "NEW", "", None]])
    # It begins anew, in the schema of its creation.
    place.sql(f"ALTER CLUSTER {cluster} SET (REPLICATION FACTOR 0)")
    place.sql(f"ALTER CLUSTER {cluster} SET (REPLICATION FACTOR 1)")
    registry.serializes = False
    send(kafka, topic, (framed(key, written(KEY, "Key", id=2)), None), row(3, customer="joe"))
    becomes(place, rows, [[3, "joe", None, "NEW", "", None]])
    # The latest schema has a column more, behind the others.
    last = ORDER.replace("at = 5;", "at = 5; uint64 last = 6;")
    latest = registry.register_protobuf(f"{topic}-value", last)
    place.sql("ALTER SOURCE s REFRESH SCHEMA")
    send(kafka, topic, row(4, latest, last, last=2**64 - 1))
    becomes(place, "SELECT id, last FROM s", [[3, None], [4, str(2**64 - 1)]])
    ((_, shown),) = place.rows("SHOW CREATE SOURCE s")
    assert "FORMAT PROTOBUF USING CONFLUENT SCHEMA REGISTRY CONNECTION" in shown
    with pytest.raises(SqlError, match="SLACKWATER_DEPENDENT_OBJECTS"):
        place.sql("DROP CONNECTION r")


def test_a_descriptor_set_that_is_given(place, kafka):
    """Tables of one topic read it in their ways."""
    topic = kafka.new_topic()
    order = written(ORDER, "shop.Order", customer="ann", amount=1)
    send(kafka, topic, (b"a", order), (b"b", b"\x0a\xff"), (b"c", framed(1, order)))
    place.sql(f"CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC '{topic}') {EACH_50_MS}")
    digits = descriptors(ORDER).hex()
    given = f"FORMAT PROTOBUF MESSAGE 'shop.Order' USING SCHEMA '\\\\x{digits}'"
    place.sql(f"CREATE TABLE bare FROM SOURCE s {given} INCLUDE OFFSET ON ERROR SKIP")
    place.sql(
        f"CREATE TABLE headed FROM SOURCE s KEY FORMAT TEXT VALUE {given} "
        "(CONFLUENT WIRE FORMAT = true) ENVELOPE UPSERT (VALUE DECODING ERRORS = INLINE)"
    )
    assert place.rows("SELECT customer, amount, offset FROM bare") == [["ann", 1, 0]]
    header = "it does not begin with a zero byte and the id of a schema"
    assert sorted(place.rows("SELECT key, customer, error.description FROM headed")) == [
        ["a", None, header],
        ["b", None, header],
        ["c", "ann", None],
    ]
    place.sql(
        f"CREATE SOURCE letters FROM KAFKA CONNECTION k (TOPIC '{topic}') {given} "
        f"ON ERROR DEAD LETTER {EACH_50_MS}"
    )
    assert place.rows("SELECT customer FROM letters") == [["ann"]]
    reasons = [row[0] for row in place.rows("SELECT reason FROM letters_dead_letters")]
    assert len(reasons) == 2
    assert all(each.startswith("it is no message shop.Order") for each in reasons)
    assert f"X'{digits}'" in place.value("SHOW CREATE TABLE bare")


def test_schemas_that_are_not_there_or_have_no_columns(place, kafka, registry):
    topic = kafka.new_topic()
    create = "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC '{}') FORMAT {}"
    given = f"PROTOBUF MESSAGE 'shop.Gone' USING SCHEMA X'{descriptors(ORDER).hex()}'"
    several = f"{KEY} message Other {{ int32 a = 1; }}"
    texts = {"t-several": several, "t-itself": 'syntax = "proto3"; message T { T t = 1; }'}
    numbers = {name: registry.register_protobuf(name, text) for name, text in texts.items()}
    number = registry.register("t-avro", "long")
    for decoding, condition, reason in (
        (PROTOBUF, "SLACKWATER_UNKNOWN_SCHEMA", f"subject {topic}-value"),
        (given, "SLACKWATER_PROTOBUF_SCHEMA", "no message shop.Gone; it has shop.Order"),
        (f"{PROTOBUF} VALUE STRATEGY ID 77", "SLACKWATER_UNKNOWN_SCHEMA", "schema 77"),
        (f"{PROTOBUF} VALUE STRATEGY ID {number}", "SLACKWATER_PROTOBUF_SCHEMA", "kind AVRO"),
        (
            f"{PROTOBUF} VALUE STRATEGY ID {numbers['t-several']}",
            "SLACKWATER_PROTOBUF_SCHEMA",
            "which message is meant; there is Key, Other",
        ),
        (
            f"{PROTOBUF} VALUE STRATEGY ID {numbers['t-itself']}",
            "SLACKWATER_PROTOBUF_SCHEMA",
            "the message T contains itself",
        ),
    ):
        with pytest.raises(SqlError, match=condition) as caught:
            place.sql(create.format(topic, decoding))
        assert reason in caught.value.message
    named = PROTOBUF.replace("USING", "MESSAGE 'Other' USING")
    place.sql(create.format(topic, f"{named} VALUE STRATEGY ID {numbers['t-several']}"))
    assert [row[0] for row in place.rows("DESCRIBE s")][:1] == ["a"]
