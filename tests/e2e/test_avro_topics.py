"""Sources that read Avro from topics of a real broker, with a schema registry."""

from __future__ import annotations

import pytest
from tests.support.applications.application import SqlError
from tests.support.applications.awaited import becomes
from tests.support.kafka.sending import send
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

NUMBER = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": ["null", "long"], "default": None},
    ],
}
EACH_50_MS = "WITH (TIMESTAMP INTERVAL '50 ms')"


@pytest.fixture
def place(workplace, kafka, registry):
    """A workplace with connections to the broker, `k`, and to the registry, `r`."""
    broker = f"BROKER '{kafka.address}', SECURITY PROTOCOL 'PLAINTEXT'"
    workplace.sql(f"CREATE CONNECTION k TO KAFKA ({broker}) WITH (VALIDATE = false)")
    workplace.sql(
        f"CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL '{registry.address}') "
        "WITH (VALIDATE = true)"
    )
    return workplace


def source(place, topic, rest, name="s"):
    place.sql(f"CREATE SOURCE {name} FROM KAFKA CONNECTION k (TOPIC '{topic}') {rest} {EACH_50_MS}")


AVRO = "AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION r"


@pytest.mark.nightly
def test_keys_and_values_of_a_registry(place, cluster, kafka, registry):
    """Writers change their schema, a key is written in two, and the registry goes and comes."""
    topic = kafka.new_topic()
    key = registry.register(f"{topic}-key", NUMBER)
    value = registry.register(f"{topic}-value", ORDER)
    send(
        kafka,
        topic,
        *(
            (
                registry.message(key, {"id": n % 3}),
                registry.message(value, {"customer": f"c{n}", "amount": n}),
            )
            for n in range(9)
        ),
    )
    source(place, topic, f"FORMAT {AVRO} ENVELOPE UPSERT", f"s IN CLUSTER {cluster}")
    assert sorted(place.rows("SELECT * FROM s")) == [
        [0, "c6", 6],
        [1, "c7", 7],
        [2, "c8", 8],
    ]
    with_more = {**ORDER, "fields": [*ORDER["fields"], {"name": "more", "type": "int"}]}
    without = {**ORDER, "fields": ORDER["fields"][:1]}
    as_int = {**NUMBER, "fields": [{"name": "id", "type": "int"}]}
    other = {**ORDER, "fields": [{"name": "amount", "type": "string"}]}
    more, fewer, narrow, wrong = (
        registry.register(f"{topic}-value", with_more),
        registry.register(f"{topic}-value", without),
        registry.register(f"{topic}-key", as_int),
        registry.register(f"{topic}-value", other),
    )
    send(
        kafka,
        topic,
        (registry.message(key, {"id": 0}), None),
        (
            registry.message(narrow, {"id": 1}),
            registry.message(more, {"customer": "more", "amount": 1, "more": 7}),
        ),
        (registry.message(narrow, {"id": 2}), registry.message(fewer, {"customer": "fewer"})),
    )
    becomes(place, "SELECT * FROM s", [[1, "more", 1], [2, "fewer", None]])
    # What does not resolve, is unknown or cut off is an error until its key has another value.
    bad = (
        registry.message(wrong, {"amount": "x"}),
        b"\0\0\0\x03\xe7\x02",
        registry.message(value, {"customer": "cut off", "amount": 1})[:-1],
        b"no Avro at all",
    )
    for each in bad:
        send(kafka, topic, (registry.message(key, {"id": 2}), each))
        wait_until(lambda: fails(place), what="the error is there")
        send(
            kafka,
            topic,
            (registry.message(key, {"id": 2}), registry.message(fewer, {"customer": "again"})),
        )
        becomes(place, "SELECT * FROM s", [[1, "more", 1], [2, "again", None]])
    # An error stays with its key when the source begins anew, which asks for no schema to read in.
    send(kafka, topic, (registry.message(narrow, {"id": 2}), b"no Avro"))
    wait_until(lambda: fails(place), what="the error is there")
    place.sql(f"ALTER CLUSTER {cluster} SET (REPLICATION FACTOR 0)")
    registry.asked.clear()
    # The key of the error is in a schema that it asks for.
    registry.answers[f"/schemas/ids/{narrow}"] = 503, b"away"
    place.sql(f"ALTER CLUSTER {cluster} SET (REPLICATION FACTOR 1)")
    is_stalled(place)
    del registry.answers[f"/schemas/ids/{narrow}"]
    send(kafka, topic, (registry.message(key, {"id": 2}), None))
    becomes(place, "SELECT * FROM s", [[1, "more", 1]])
    assert registry.asked
    assert not [path for path in registry.asked if path.startswith("/subjects")]


def fails(place, query="SELECT * FROM s"):
    try:
        place.rows(query)
    except SqlError:
        return True
    return False


def is_stalled(place):
    """Waits until the source says that its registry does not answer."""
    status = "SELECT error FROM mz_internal.mz_source_statuses WHERE name = 's'"
    wait_until(
        lambda: "SLACKWATER_REGISTRY_UNREACHABLE" in (place.value(status) or ""),
        what="the source says that the registry does not answer",
    )


def test_a_registry_that_does_not_answer_stalls_the_source(place, kafka, registry):
    topic = kafka.new_topic()
    value = registry.register(f"{topic}-value", "long")
    source(place, topic, f"KEY FORMAT TEXT VALUE FORMAT {AVRO} ENVELOPE UPSERT")
    send(kafka, topic, (b"a", registry.message(value, 1)))
    becomes(place, "SELECT * FROM s", [["a", 1]])
    number = registry.register(f"{topic}-value", "int")
    path = f"/schemas/ids/{number}"
    registry.answers[path] = 503, b"away"
    send(kafka, topic, (b"a", registry.message(number, 2)))
    is_stalled(place)
    assert place.rows("SELECT * FROM s") == [["a", 1]]
    del registry.answers[path]
    becomes(place, "SELECT * FROM s", [["a", 2]])


def test_formats_may_be_mixed(place, kafka, registry):
    topic = kafka.new_topic()
    pair = {**NUMBER, "fields": [*NUMBER["fields"], {"name": "part", "type": "string"}]}
    key = registry.register(f"{topic}-key", pair)
    value = registry.register("elsewhere", ORDER)
    both = (
        registry.message(key, {"id": 1, "part": "p"}),
        registry.message(value, {"customer": "ann", "amount": None}),
    )
    send(kafka, topic, both, (None, both[1]))
    source(place, topic, f"FORMAT {AVRO} VALUE STRATEGY ID {value} INCLUDE KEY, OFFSET", "a")
    assert place.rows("SELECT * FROM a ORDER BY offset") == [
        [1, "p", "ann", None, 0],
        [None, None, "ann", None, 1],
    ]
    source(place, topic, f"KEY FORMAT {AVRO} VALUE FORMAT BYTES INCLUDE KEY AS k", "b")
    assert place.rows("SELECT k.id, k.part FROM b WHERE k IS NOT NULL") == [[1, "p"]]
    text = f"FORMAT {AVRO} VALUE STRATEGY INLINE '\"string\"'"
    source(place, topic, text, "c")
    assert fails(place, "SELECT * FROM c")
    ((_, shown),) = place.rows("SHOW CREATE SOURCE a")
    assert f".`r` VALUE STRATEGY ID {value} INCLUDE KEY, OFFSET" in shown
    for connection in ("k", "r"):
        with pytest.raises(SqlError, match="SLACKWATER_DEPENDENT_OBJECTS"):
            place.sql(f"DROP CONNECTION {connection}")


def test_a_schema_that_is_given(place, kafka):
    topic = kafka.new_topic()
    send(kafka, topic, (None, b"\x06abc"), (None, b"\0\0\0\0\x07\x04de"))
    for header, error in (("false", "SKIP"), ("true", "DEAD LETTER")):
        given = f"USING SCHEMA '\"string\"' (CONFLUENT WIRE FORMAT = {header})"
        source(place, topic, f"FORMAT AVRO {given} ON ERROR {error}", f"s_{header}")
    assert place.rows("SELECT data FROM s_false") == [["abc"]]
    assert place.rows("SELECT data FROM s_true") == [["de"]]
    assert place.rows("SELECT reason FROM s_true_dead_letters") == [
        ["it does not begin with a zero byte and the id of a schema"]
    ]


def test_schemas_that_are_not_there_or_have_no_columns(place, kafka, registry):
    topic = kafka.new_topic()
    with pytest.raises(SqlError, match="SLACKWATER_UNKNOWN_SCHEMA") as caught:
        source(place, topic, f"FORMAT {AVRO}")
    assert f"subject {topic}-value" in caught.value.message
    with pytest.raises(SqlError, match="SLACKWATER_UNKNOWN_SCHEMA"):
        source(place, topic, f"FORMAT {AVRO} VALUE STRATEGY ID 77")
    itself = {"type": "record", "name": "T", "fields": [{"name": "t", "type": ["null", "T"]}]}
    registry.register(f"{topic}-value", itself)
    with pytest.raises(SqlError, match="SLACKWATER_AVRO_SCHEMA") as caught:
        source(place, topic, f"FORMAT {AVRO}")
    assert "the record T contains itself" in caught.value.message
    path = f"/subjects/{topic}-value/versions/latest"
    for answer in ((503, b""), (200, b"no JSON"), (200, [])):
        registry.answers[path] = answer
        with pytest.raises(SqlError, match="SLACKWATER_REGISTRY_UNREACHABLE"):
            source(place, topic, f"FORMAT {AVRO}")
    registry.answers[path] = 200, {"schema": "syntax = 'proto3'", "schemaType": "PROTOBUF"}
    with pytest.raises(SqlError, match="SLACKWATER_AVRO_SCHEMA"):
        source(place, topic, f"FORMAT {AVRO}")
    with pytest.raises(SqlError, match="SLACKWATER_INVALID_OPTION"):
        source(place, topic, f"FORMAT {AVRO.replace('CONNECTION r', 'CONNECTION k')}")


def test_a_later_schema_adds_columns(place, cluster, kafka, registry):
    """Rows that are there have NULL in them; nothing else may be different."""
    topic = kafka.new_topic()
    key = registry.register(f"{topic}-key", NUMBER)
    first = registry.register(f"{topic}-value", ORDER)

    def message(schema, number, **value):
        return registry.message(key, {"id": number}), registry.message(schema, value)

    send(kafka, topic, message(first, 1, customer="ann", amount=1))
    source(place, topic, f"FORMAT {AVRO} ENVELOPE UPSERT", f"s IN CLUSTER {cluster}")
    place.sql("ALTER SOURCE s REFRESH SCHEMA")
    added = [
        {"name": "more", "type": ["null", "int"], "default": None},
        {"name": "also", "type": ["null", "string"], "default": None},
    ]
    more = registry.register(f"{topic}-value", {**ORDER, "fields": [*ORDER["fields"], *added]})
    send(kafka, topic, message(more, 2, customer="bob", amount=2, more=3, also="x"))
    becomes(place, "SELECT * FROM s", [[1, "ann", 1], [2, "bob", 2]])
    place.sql("CREATE MATERIALIZED VIEW v AS SELECT id FROM s")
    with pytest.raises(SqlError, match="SLACKWATER_DEPENDENT_OBJECTS"):
        place.sql("ALTER SOURCE s REFRESH SCHEMA")
    place.sql("DROP MATERIALIZED VIEW v")
    place.sql("ALTER SOURCE s REFRESH SCHEMA")
    becomes(place, "SELECT * FROM s", [[1, "ann", 1, None, None], [2, "bob", 2, None, None]])
    send(
        kafka,
        topic,
        message(more, 1, customer="ann", amount=4, more=None, also="y"),
        message(first, 3, customer="eve", amount=5),
    )
    rows = [[1, "ann", 4, None, "y"], [2, "bob", 2, None, None], [3, "eve", 5, None, None]]
    becomes(place, "SELECT * FROM s", rows)
    place.sql("ALTER SOURCE s RESNAPSHOT")
    rows[1] = [2, "bob", 2, 3, "x"]
    becomes(place, "SELECT * FROM s", rows)
    place.sql(f"ALTER CLUSTER {cluster} SET (REPLICATION FACTOR 0)")
    place.sql(f"ALTER CLUSTER {cluster} SET (REPLICATION FACTOR 1)")
    send(kafka, topic, (registry.message(key, {"id": 1}), None))
    becomes(place, "SELECT * FROM s", rows[1:])
    # The source does not run, and has its columns anyway.
    place.sql(f"ALTER CLUSTER {cluster} SET (REPLICATION FACTOR 0)")
    last = {"name": "last", "type": ["null", "long"], "default": None}
    fields = [*ORDER["fields"], *added]
    registry.register(f"{topic}-value", {**ORDER, "fields": [*fields, last]})
    place.sql("ALTER SOURCE s REFRESH SCHEMA")
    assert "last" in [name for name, *_ in place.rows("DESCRIBE s")]
    nullable = {"name": "customer", "type": ["null", "string"]}
    for wrong, reason in (
        ([last, *fields], "new columns come after the others"),
        (fields, "the column last is missing"),
        ([*fields, {**last, "type": "long", "default": 0}], "rows may have NULL in last"),
        ([nullable, *fields[1:], last], "customer can be NULL"),
        ([*fields, {**last, "type": ["null", "int"]}], "the type of last is BIGINT, not INT"),
        ([*fields, last, {"name": "new", "type": "int", "default": 0}], "new is NOT NULL"),
    ):
        registry.register(f"{topic}-value", {**ORDER, "fields": wrong})
        with pytest.raises(SqlError, match="SLACKWATER_COLUMN_MISMATCH") as caught:
            place.sql("ALTER SOURCE s REFRESH SCHEMA")
        assert reason in caught.value.message


def test_schemas_that_are_not_refreshed(place, kafka, registry):
    topic = kafka.new_topic()
    number = registry.register(f"{topic}-value", "long")
    for name, decoding in (
        ("a", "FORMAT TEXT"),
        ("b", f"FORMAT {AVRO} VALUE STRATEGY ID {number}"),
        ("c", "FORMAT AVRO USING SCHEMA '\"long\"'"),
    ):
        source(place, topic, decoding, name)
        with pytest.raises(SqlError, match="SLACKWATER_UNSUPPORTED"):
            place.sql(f"ALTER SOURCE {name} REFRESH SCHEMA")
    place.sql("ALTER SOURCE IF EXISTS nothing REFRESH SCHEMA")
    place.sql("CREATE SOURCE g FROM LOAD GENERATOR COUNTER")
    with pytest.raises(SqlError, match="SLACKWATER_WRONG_KIND"):
        place.sql("ALTER SOURCE g REFRESH SCHEMA")


def test_a_table_of_a_topic_in_avro(place, kafka, registry):
    """A topic whose values are written in two ways is read by a table for each."""
    topic = kafka.new_topic()
    value = registry.register(f"{topic}-value", ORDER)
    message = registry.message(value, {"customer": "ann", "amount": 1})
    send(kafka, topic, (b"a", message), (b"b", b"{}"))
    place.sql(f"CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC '{topic}') {EACH_50_MS}")
    place.sql(f"CREATE TABLE orders FROM SOURCE s FORMAT {AVRO} ON ERROR SKIP")
    place.sql("CREATE TABLE raw FROM SOURCE s FORMAT BYTES INCLUDE OFFSET")
    place.sql("CREATE TABLE broken FROM SOURCE s (REFERENCE `" + topic + f"`) FORMAT {AVRO}")
    assert place.rows("SELECT * FROM orders") == [["ann", 1]]
    assert place.rows("SELECT count(*) FROM raw") == [[2]]
    with pytest.raises(SqlError, match="SLACKWATER_SOURCE_ERROR"):
        place.rows("SELECT * FROM broken")
    for connection in ("k", "r"):
        with pytest.raises(SqlError, match="SLACKWATER_DEPENDENT_OBJECTS"):
            place.sql(f"DROP CONNECTION {connection}")
    place.sql("ALTER CONNECTION r RENAME TO schemas")
    shown = place.value("SHOW CREATE TABLE orders")
    assert ".`schemas` ON ERROR SKIP" in shown
    place.sql("DROP TABLE orders")
    place.sql("DROP TABLE broken")
    place.sql("DROP CONNECTION schemas")
    send(kafka, topic, (b"c", b"x"))
    becomes(place, "SELECT count(*) FROM raw", [[3]])


def test_tables_take_columns_of_a_later_schema(place, kafka, registry):
    """Those that are named, or all that read a latest schema; the others go on as they are."""
    topic = kafka.new_topic()
    key = registry.register(f"{topic}-key", NUMBER)
    first = registry.register(f"{topic}-value", ORDER)

    def message(schema, number, **value):
        return registry.message(key, {"id": number}), registry.message(schema, value)

    send(kafka, topic, message(first, 1, customer="ann", amount=1))
    place.sql(f"CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC '{topic}') {EACH_50_MS}")
    for name, decoding in (
        ("last", f"FORMAT {AVRO} ENVELOPE UPSERT"),
        ("log", f"FORMAT {AVRO}"),
        ("fixed", f"FORMAT {AVRO} VALUE STRATEGY ID {first}"),
        ("raw", "FORMAT BYTES"),
    ):
        place.sql(f"CREATE TABLE {name} FROM SOURCE s {decoding}")
    more = {"name": "more", "type": ["null", "int"], "default": None}
    fields = [*ORDER["fields"], more]
    second = registry.register(f"{topic}-value", {**ORDER, "fields": fields})
    send(kafka, topic, message(second, 2, customer="bob", amount=2, more=3))
    # The first contents of each table come by a copy of its own, some of them later than others.
    for name in ("last", "raw"):
        becomes(place, f"SELECT count(*) FROM {name}", [[2]])
    place.sql("ALTER SOURCE s REFRESH SCHEMA TABLES (last)")
    assert place.rows("SELECT * FROM last ORDER BY id") == [
        [1, "ann", 1, None],
        [2, "bob", 2, None],
    ]
    assert place.rows("SELECT count(*) FROM raw") == [[2]]
    send(kafka, topic, message(second, 3, customer="eve", amount=3, more=4))
    becomes(place, "SELECT * FROM last WHERE id = 3", [[3, "eve", 3, 4]])
    assert [name for name, *_ in place.rows("DESCRIBE log")] == ["customer", "amount"]
    place.sql("CREATE MATERIALIZED VIEW v AS SELECT id FROM last")
    # The table that has a view above it has the latest schema already.
    place.sql("ALTER SOURCE s REFRESH SCHEMA")
    send(kafka, topic, message(second, 1, customer="ann", amount=5, more=6))
    becomes(place, "SELECT more FROM log ORDER BY more", [[None], [None], [None], [6]])
    assert place.rows("SELECT * FROM last WHERE id = 1") == [[1, "ann", 5, 6]]
    place.sql("ALTER SOURCE s RESNAPSHOT TABLES (last)")
    assert place.rows("SELECT more FROM last WHERE id = 2") == [[3]]
    place.sql(f"CREATE TABLE later FROM SOURCE s FORMAT {AVRO}")
    assert place.rows("SELECT more FROM later ORDER BY more") == [[None], [3], [4], [6]]
    # Of several all change, or none.
    also = {"name": "also", "type": ["null", "int"], "default": None}
    registry.register(f"{topic}-value", {**ORDER, "fields": [*fields, also]})
    with pytest.raises(SqlError, match="SLACKWATER_DEPENDENT_OBJECTS"):
        place.sql("ALTER SOURCE s REFRESH SCHEMA TABLES (log, last)")
    assert "also" not in [name for name, *_ in place.rows("DESCRIBE log")]
    place.sql(f"CREATE SOURCE whole FROM KAFKA CONNECTION k (TOPIC '{topic}') FORMAT {AVRO}")
    for statement, condition in (
        ("s REFRESH SCHEMA TABLES (raw)", "UNSUPPORTED"),
        ("s REFRESH SCHEMA TABLES (fixed)", "UNSUPPORTED"),
        ("s REFRESH SCHEMA TABLES (v)", "WRONG_KIND"),
        ("whole REFRESH SCHEMA TABLES (last)", "UNSUPPORTED"),
    ):
        with pytest.raises(SqlError, match=f"SLACKWATER_{condition}"):
            place.sql(f"ALTER SOURCE {statement}")
    for name in ("later", "log"):
        place.sql(f"DROP TABLE {name}")
    place.sql("DROP MATERIALIZED VIEW v")
    place.sql("DROP TABLE last")
    with pytest.raises(SqlError, match="SLACKWATER_UNSUPPORTED"):
        place.sql("ALTER SOURCE s REFRESH SCHEMA")
