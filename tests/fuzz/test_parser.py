"""Round trip, fuzz, and that comments and white space do not matter.

EXAMPLES in the environment sets the number of texts.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.planner.parser import statements as s
from slackwater.planner.parser.canonical import to_sql
from slackwater.planner.parser.connection_options import FORMS, WORDS, Form
from slackwater.planner.parser.connection_statements import (
    AlterConnection,
    ConnectionOption,
    CreateConnection,
    RotateKeys,
    ValidateConnection,
)
from slackwater.planner.parser.kafka_sink import (
    Compatibility,
    KafkaSinkConnector,
    SinkDoc,
    SinkRegistry,
)
from slackwater.planner.parser.kafka_source import (
    Decoding,
    GivenSchema,
    Included,
    KafkaSource,
    Payload,
    RefreshSchema,
    Registry,
    ResnapshotSource,
    SkipLost,
    Strategy,
)
from slackwater.planner.parser.lake_sink import DeltaSinkConnector, IcebergSinkConnector
from slackwater.planner.parser.lake_source import DeltaSource, IcebergSource
from slackwater.planner.parser.lake_table import DeltaTable, IcebergTable
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.parse import parse
from slackwater.planner.parser.postgres_source import PostgresSource, UpstreamTable
from slackwater.planner.parser.source_tables import (
    CreateTableFromSource,
    ReferencedTable,
    RefreshReferences,
)
from slackwater.planner.parser.tokens import Kind, tokenize
from slackwater.repr.errors import SlackwaterError, TextPosition

EXAMPLES = int(os.environ.get("EXAMPLES", "0"))
STATEMENTS = (
    (Path(__file__).parents[1] / "unit/planner/statements/input.sql").read_text().splitlines()
)

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
parts = texts | st.sampled_from(["t", "from", "IN", "CLUSTER", "if", "all", "a`b", "with", "KEY"])
names = st.lists(parts, min_size=1, max_size=3).map(lambda p: QualifiedName(tuple(p)))
columns = st.lists(parts, min_size=1, max_size=3).map(tuple)
few_columns = st.lists(parts, max_size=2).map(tuple)
queries = st.sampled_from(
    [
        "SELECT 1",
        "WITH c AS (SELECT 1) SELECT * FROM c",
        "VALUES (1, 'x;')",
        "(SELECT 1 AS of)",
        "SELECT 1 AS of",
        "FROM t",
        "SELECT ')' -- c\n, \"(\"",
        "TABLE t",
        "SELECT 10L, x'ab'",
    ]
).map(s.TextSlice)
expressions = st.sampled_from(["5", "now() - INTERVAL 1 DAY", "(7)", "CAST('x' AS TIMESTAMP)"])
slices = expressions.map(s.TextSlice)
as_ofs = st.builds(s.AsOf, st.sampled_from(["at", "at_least"]), slices)
spans = st.integers(1, 2**63 - 1) | st.sampled_from([1000, 3_600_000, 86_400_000])
maybe_spans = st.none() | spans
counts = st.none() | st.integers(0, 2**63 - 1)
clusters = st.sampled_from([None, "quickstart"])
replacing = st.sampled_from([(False, False), (True, False), (False, True)])
envelopes = st.builds(s.Envelope, st.sampled_from(["UPSERT", "DEBEZIUM"]), columns)
subscribes = st.builds(
    s.Subscribe,
    names | st.sampled_from(["SELECT 1", "SELECT (1)"]).map(s.TextSlice),
    st.booleans(),
    st.booleans(),
    st.none() | as_ofs,
    st.none() | slices,
    st.none() | envelopes,
    st.none() | st.sampled_from(["mz_diff DESC", "a, b"]).map(s.TextSlice),
)
readings = st.builds(s.Query, queries, st.none() | as_ofs)
retainers = st.sampled_from(["TABLE", "MATERIALIZED VIEW", "SOURCE", "INDEX"]).map(s.ObjectKind)
kinds = st.sampled_from([k for k in s.ObjectKind if k is not s.ObjectKind.COLUMN])
commented = st.sampled_from(["VIEW", "MATERIALIZED VIEW", "SOURCE", "SINK", "INDEX"])
generators = (
    st.builds(
        s.LoadGenerator,
        st.just("COUNTER"),
        maybe_spans,
        counts,
        counts,
        max_cardinality=counts,
    )
    | st.builds(
        s.LoadGenerator,
        st.just("AUCTION"),
        maybe_spans,
        counts,
        counts,
        seed=counts,
        for_all_tables=st.booleans(),
    )
    | st.builds(
        s.LoadGenerator,
        st.just("AUCTION"),
        for_tables=st.lists(st.builds(ReferencedTable, names, st.none() | parts), max_size=3).map(
            tuple
        ),
    )
    | st.builds(
        s.LoadGenerator,
        st.just("TPCH"),
        maybe_spans,
        seed=counts,
        for_all_tables=st.booleans(),
        scale_factor=st.none() | st.integers(1, 10**7).map(lambda n: n / 10**6),
    )
    | st.builds(
        s.LoadGenerator,
        st.just("KEY VALUE"),
        maybe_spans,
        seed=st.integers(0, 9),
        keys=st.integers(1, 9).map(lambda n: 12 * n),
        partitions=st.integers(1, 3),
        snapshot_rounds=st.integers(1, 9),
        transactional_snapshot=st.none() | st.booleans(),
        value_size=st.integers(1, 9),
        batch_size=st.integers(1, 2),
        envelope=st.sampled_from([None, "NONE", "UPSERT"]),
    )
)
files = st.builds(
    s.FilesSource,
    texts,
    st.just("CSV"),
    st.none() | st.booleans(),
    st.none() | texts,
    st.none() | texts,
    st.sampled_from(["STALL", "SKIP", "PROPAGATE"]),
)
ids = st.integers(0, 2**31 - 1)
strategies = st.just(Strategy()) | st.builds(Strategy, ids) | st.builds(Strategy, schema=texts)
given_schemas = st.builds(GivenSchema, texts, st.booleans())
plain_payloads = st.sampled_from([Payload("TEXT"), Payload("BYTES"), Payload("JSON")])
plain_payloads |= st.builds(Payload, st.just("AVRO"), schema=given_schemas)
messages = st.sampled_from(["M", "a.b.M"])
given_messages = st.builds(GivenSchema, st.binary(max_size=3).map(bytes.hex), st.booleans())
plain_payloads |= st.builds(Payload, st.just("PROTOBUF"), schema=given_messages, message=messages)
by_registry = st.just(Strategy()) | st.builds(Strategy, ids)
values_in_protobuf = st.builds(
    Payload,
    st.just("PROTOBUF"),
    schema=st.builds(Registry, names, value=by_registry),
    message=st.none() | messages,
)
keys_in_protobuf = st.builds(
    Payload,
    st.just("PROTOBUF"),
    schema=st.builds(Registry, names, by_registry),
    message=st.none() | messages,
)
both_in_protobuf = st.builds(
    Payload,
    st.just("PROTOBUF"),
    schema=st.builds(Registry, names, by_registry, by_registry),
    message=st.none() | messages,
)
values_in_avro = st.builds(
    Payload, st.just("AVRO"), schema=st.builds(Registry, names, value=strategies)
)
keys_in_avro = st.builds(Payload, st.just("AVRO"), schema=st.builds(Registry, names, strategies))
both_in_avro = st.builds(
    Payload, st.just("AVRO"), schema=st.builds(Registry, names, strategies, strategies)
)
keys_with_schema = keys_in_avro | keys_in_protobuf
payloads = plain_payloads | values_in_avro | values_in_protobuf
csv = st.builds(Payload, st.just("CSV"), st.integers(1, 9), delimiter=st.sampled_from(",;|\t")) | (
    st.builds(Payload, st.just("CSV"), header=columns, delimiter=st.just("'"))
)
included = st.lists(
    st.builds(Included, st.sampled_from(["PARTITION", "OFFSET", "TIMESTAMP", "HEADERS"]), parts)
    | st.builds(Included, st.just("KEY"), st.none() | parts),
    unique_by=lambda each: each.what,
).map(tuple) | st.tuples(st.builds(Included, st.just("HEADER"), parts, texts, st.booleans()))
errors = st.sampled_from(["PROPAGATE", "SKIP", "DEAD LETTER"])
decodings = (
    st.builds(
        Decoding,
        payloads | csv,
        st.none() | plain_payloads | keys_with_schema,
        included.map(lambda found: tuple(each for each in found if each.what != "KEY")),
        on_error=errors,
    )
    | st.builds(
        lambda v, k, i, u, e: Decoding(v, k, i, "NONE" if u is False else "UPSERT", u or None, e),
        payloads | csv,
        plain_payloads | keys_with_schema,
        included,
        st.just(False) | st.none() | parts,
        errors,
    )
    | st.builds(
        lambda v, i, n, e: Decoding(v, None, i, n, None, e),
        both_in_avro,
        included,
        st.sampled_from(["UPSERT", "DEBEZIUM"]),
        errors,
    )
    | st.builds(
        lambda v, i, e: Decoding(v, None, i, "UPSERT", None, e), both_in_protobuf, included, errors
    )
    | st.builds(
        lambda v, k, i, e: Decoding(v, k, i, "DEBEZIUM", None, e),
        payloads.filter(lambda payload: payload.kind in ("JSON", "AVRO", "PROTOBUF")),
        plain_payloads | keys_with_schema,
        included,
        errors,
    )
)
topics = st.builds(
    KafkaSource,
    names,
    st.sampled_from(["t", "a.b-c_1"]),
    st.none() | decodings,
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
    group_id_prefix=st.none() | texts,
) | st.builds(
    KafkaSource,
    names,
    st.just("t"),
    decodings,
    start_timestamp_ms=st.none() | st.integers(-9, 9),
)


full_columns = st.lists(parts, min_size=2, max_size=3).map(lambda p: QualifiedName(tuple(p)))
of_tables = st.lists(full_columns, max_size=2).map(tuple)
upstream_names = st.lists(parts, min_size=1, max_size=2).map(lambda p: QualifiedName(tuple(p)))
upstream_tables = st.lists(
    st.builds(UpstreamTable, upstream_names, st.none() | parts), min_size=1, max_size=2
).map(tuple)
publications = (
    st.builds(PostgresSource, names, texts, upstream_tables, st.just(()), of_tables, of_tables)
    | st.builds(PostgresSource, names, texts, st.just(()), few_columns, of_tables, of_tables)
    | st.builds(PostgresSource, names, texts, is_bare=st.just(True))
)
delta_tables = st.builds(DeltaTable, texts, st.none() | names)
iceberg_tables = st.builds(IcebergTable, names, texts, texts, st.none() | names)
lake_sources = st.builds(
    DeltaSource, delta_tables, st.none() | st.integers(0, 2**63 - 1)
) | st.builds(IcebergSource, iceberg_tables)


def takes_columns(connector):
    if isinstance(connector, KafkaSource):
        decoding = connector.decoding
        return decoding is not None and decoding.value.kind in ("JSON", "CSV")
    return isinstance(connector, s.FilesSource)


def declared(connector, columns):
    """The columns of a source, which may or have to be declared, or must not."""
    if not takes_columns(connector):
        return None
    decoding = getattr(connector, "decoding", None)
    if columns is None and decoding is not None and decoding.envelope == "DEBEZIUM":
        return s.TextSlice("a int")
    return columns


def with_needed_columns(table):
    """The table, with columns where its messages do not say which there are."""
    if table.decoding is None or not table.decoding.needs_columns:
        return table
    return replace(table, columns="a int")


levels = st.none() | st.sampled_from(get_args(Compatibility))


def docs(*sides):
    """What schemas say of relations and columns; each thing once."""
    found = st.builds(SinkDoc, names, texts, st.none() | parts, st.sampled_from([None, *sides]))
    listed = st.lists(
        found, max_size=3, unique_by=lambda each: ((each.column or "").casefold(), each.side)
    )
    return listed.map(tuple)


def without_defaults(registry):
    """NULL DEFAULTS are for Avro alone."""
    return replace(registry, null_defaults=False)


for_values = st.builds(
    SinkRegistry,
    names,
    value_fullname=st.none() | texts,
    null_defaults=st.booleans(),
    value_compatibility=levels,
    docs=docs("VALUE"),
)
for_keys = st.builds(
    SinkRegistry,
    names,
    st.none() | texts,
    null_defaults=st.booleans(),
    key_compatibility=levels,
    docs=docs("KEY"),
)
for_both = st.builds(
    SinkRegistry,
    names,
    st.none() | texts,
    st.none() | texts,
    st.booleans(),
    levels,
    levels,
    docs("KEY", "VALUE"),
)
sink_formats = st.one_of(
    st.tuples(st.sampled_from(["JSON", "TEXT", "BYTES"]), st.none()),
    st.tuples(st.just("AVRO"), for_values),
    st.tuples(st.just("PROTOBUF"), for_values.map(without_defaults)),
)
key_formats = st.one_of(
    st.tuples(st.sampled_from(["JSON", "TEXT", "BYTES"]), st.none()),
    st.tuples(st.just("AVRO"), for_keys),
    st.tuples(st.just("PROTOBUF"), for_keys.map(without_defaults)),
)
topic_sinks = st.builds(
    lambda name, value, key, more: KafkaSinkConnector(
        name, "t", value[0], key[0], value_registry=value[1], key_registry=key[1], **more
    ),
    names,
    sink_formats,
    key_formats | st.just((None, None)),
    st.fixed_dictionaries({"is_enforced": st.booleans(), "headers": st.none() | parts}),
) | st.builds(
    lambda name, form, registry: KafkaSinkConnector(
        name,
        "t",
        form,
        value_registry=registry if form == "AVRO" else without_defaults(registry),
    ),
    names,
    st.sampled_from(["AVRO", "PROTOBUF"]),
    for_both,
)
upserts = st.builds(s.Envelope, st.just("UPSERT"), columns)
lake_sinks = st.builds(DeltaSinkConnector, delta_tables, st.booleans(), maybe_spans) | st.builds(
    IcebergSinkConnector,
    iceberg_tables,
    st.booleans(),
    maybe_spans,
    st.sampled_from([None, "equality", "rewrite"]),
    st.none() | st.integers(0, 2**63 - 1),
)
variables = st.sampled_from(["cluster", "anything", "transaction_isolation"])
shown = st.sampled_from(["OBJECTS", "SOURCES", "VIEWS"]).map(s.ShowKind)
booleans = st.none() | st.booleans()
moments = st.integers(0, 253_402_300_799_999) | st.sampled_from([0, 1_780_273_800_250])
refreshes = st.one_of(
    st.just(s.RefreshAtCreation()),
    st.builds(s.RefreshAt, moments),
    st.builds(s.RefreshEach, spans, st.none() | moments),
)
isolations = st.sampled_from(
    [None, "serializable", "read committed", "strong session serializable", "bounded staleness 5s"]
)
secrets = {
    option: names for option, form in FORMS.items() if form in (Form.SECRET, Form.CONNECTION)
}
free_texts = {
    option: st.tuples(texts)
    for option, form in FORMS.items()
    if form in (Form.TEXT, Form.TEXT_OR_SECRET)
}
words = {option: st.tuples(st.sampled_from(words)) for option, words in WORDS.items()}
numbers = {"PORT": st.just(("65535",)), "PROGRESS TOPIC REPLICATION FACTOR": st.just(("1",))}
places = {
    "BROKERS": st.sampled_from([("h",), ("h:1", "[::1]:2")]),
    "HOST": st.just(("h",)),
    "URL": st.sampled_from([("https://r",), ("https://r:1/a",), ("postgresql://u@h:1/d",)]),
    "ENDPOINT": st.just(("http://e",)),
    "HOST KEY": st.just(("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAgW comment",)),
}
options = st.sampled_from(sorted({**secrets, **free_texts, **words, **numbers, **places}))
given_options = st.lists(
    options.flatmap(
        lambda option: st.builds(
            ConnectionOption,
            st.just(option),
            {**secrets, **free_texts, **words, **numbers, **places}[option]
            | (names if FORMS[option] is Form.TEXT_OR_SECRET else st.nothing()),
        )
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda option: option.name,
).map(tuple)
connected = (
    st.builds(
        CreateConnection,
        names,
        st.just("AWS"),
        given_options.map(
            lambda given: tuple(o for o in given if o.name in ("REGION", "ENDPOINT"))
        ),
        st.booleans(),
        booleans,
    )
    | st.builds(
        CreateConnection,
        names,
        st.just("KAFKA"),
        st.tuples(
            places["BROKERS"].map(lambda brokers: ConnectionOption("BROKERS", brokers)),
            st.builds(ConnectionOption, st.just("PROGRESS TOPIC"), st.tuples(texts)),
        ),
    )
    | st.builds(
        CreateConnection,
        names,
        st.just("SSH TUNNEL"),
        st.tuples(
            places["HOST"].map(lambda host: ConnectionOption("HOST", host)),
            st.builds(ConnectionOption, st.just("USER"), st.tuples(texts) | names),
            places["HOST KEY"].map(lambda key: ConnectionOption("HOST KEY", key)),
        ),
    )
    | st.builds(
        CreateConnection,
        names,
        st.just("CONFLUENT SCHEMA REGISTRY"),
        st.tuples(
            st.just(ConnectionOption("URL", ("https://r:1/a",))),
            st.builds(ConnectionOption, st.just("SSH TUNNEL"), names),
        ),
    )
    | st.builds(
        CreateConnection,
        names,
        st.just("ICEBERG CATALOG"),
        st.tuples(
            st.just(ConnectionOption("CATALOG TYPE", ("rest",))),
            st.just(ConnectionOption("URL", ("https://r:1/a",))),
            st.builds(ConnectionOption, st.just("WAREHOUSE"), st.tuples(texts)),
            st.builds(ConnectionOption, st.just("CREDENTIAL"), names),
        ),
    )
    | st.builds(
        CreateConnection,
        names,
        st.just("ICEBERG CATALOG"),
        st.tuples(
            st.just(ConnectionOption("CATALOG TYPE", ("glue",))),
            st.just(ConnectionOption("WAREHOUSE", ("s3://bucket/path",))),
            st.builds(ConnectionOption, st.just("AWS CONNECTION"), names),
        ),
    )
)
altered = st.builds(AlterConnection, names, given_options, validate=booleans) | st.builds(
    AlterConnection,
    names,
    reset=st.lists(options, min_size=1, unique=True).map(tuple),
    if_exists=st.booleans(),
)
statements = st.one_of(
    connected,
    altered,
    st.builds(ValidateConnection, names),
    st.builds(RotateKeys, names, st.booleans()),
    st.builds(SkipLost, names, st.booleans()),
    st.builds(RefreshReferences, names, st.booleans()),
    st.builds(
        CreateTableFromSource,
        names,
        names,
        st.none() | names,
        decoding=st.none() | decodings,
        if_not_exists=st.booleans(),
        retain_history_ms=maybe_spans,
        text_columns=few_columns,
        exclude_columns=few_columns,
    ).map(with_needed_columns),
    st.builds(
        lambda n, f, r, key, extras: CreateTableFromSource(
            n, f, r, "a int", key=key, extras=extras
        ),
        names,
        names,
        st.none() | names,
        st.lists(parts, min_size=1, max_size=2).map(tuple),
        st.none() | parts,
    ),
    st.builds(ResnapshotSource, names, st.booleans(), st.lists(names, max_size=2).map(tuple)),
    st.builds(RefreshSchema, names, st.booleans(), st.lists(names, max_size=2).map(tuple)),
    st.builds(
        lambda n, q, h, r: s.CreateTable(n, s.TextSlice("(a int)"), q, h, *r),
        names,
        st.none() | queries,
        spans,
        replacing,
    ),
    st.builds(
        lambda n, q, c, r, t: s.CreateView(n, q, c, *r, t),
        names,
        queries,
        st.none() | columns,
        replacing,
        st.none() | st.just("") | texts,
    ),
    st.builds(
        lambda n, q, c, u, r, h, t: s.CreateMaterializedView(n, q, c, u, *r, h, refresh=t),
        names,
        queries,
        st.none() | columns,
        clusters,
        replacing,
        maybe_spans,
        st.lists(refreshes, max_size=3).map(tuple),
    ),
    st.builds(
        lambda n, c, k, e, u, p, i, h: s.CreateSource(n, c, declared(c, k), e, u, p, i, h),
        names,
        generators | files | topics | publications | lake_sources,
        st.none() | st.just(s.TextSlice("a int, b decimal(3, 2)")),
        st.booleans(),
        clusters,
        st.none() | names,
        maybe_spans,
        maybe_spans,
    ),
    st.builds(
        s.CreateSink,
        st.none() | names,
        names,
        st.builds(s.FilesSinkConnector, texts, st.sampled_from(["PARQUET", "JSON"])),
        envelopes | st.sampled_from([s.Envelope("DIFF"), s.Envelope("DEBEZIUM")]),
        st.booleans(),
        clusters,
        st.booleans(),
    ),
    st.builds(
        s.CreateSink,
        names,
        names,
        topic_sinks,
        envelopes,
    ),
    st.builds(
        s.CreateSink,
        st.none() | names,
        names,
        lake_sinks,
        upserts,
        st.booleans(),
        clusters,
        st.booleans(),
    ),
    st.builds(
        s.CreateSink,
        names,
        names,
        st.builds(DeltaSinkConnector, delta_tables, commit_interval_ms=maybe_spans),
        st.just(s.Envelope("DIFF")),
    ),
    st.builds(
        s.DropObjects,
        kinds,
        st.lists(names, min_size=1, max_size=3).map(tuple),
        st.booleans(),
        st.sampled_from([None, True, False]),
    ),
    subscribes,
    st.builds(s.DeclareCursor, parts, subscribes | readings),
    st.builds(s.Fetch, parts, counts, st.none() | st.just(0) | spans),
    st.builds(s.CloseCursor, parts),
    st.builds(s.ExplainTimestamp, readings, st.sampled_from(["TEXT", "JSON"])),
    st.builds(s.ExplainIncremental, names | queries),
    st.builds(
        s.ExplainPlan,
        st.sampled_from(["OPTIMIZED", "PHYSICAL"]),
        queries
        | st.builds(
            s.Maintained,
            st.sampled_from([s.ObjectKind.MATERIALIZED_VIEW, s.ObjectKind.INDEX]),
            names,
        ),
        st.sampled_from(["TEXT", "JSON"]),
    ),
    st.builds(s.Begin, isolations, booleans),
    st.sampled_from([s.Commit(), s.Rollback(), s.ShowAll()]),
    st.builds(s.SetVariable, variables, st.none() | st.just("") | texts, st.booleans()),
    st.builds(s.ResetVariable, variables),
    st.builds(s.AlterSystem, variables, st.none() | st.just("") | texts),
    st.just(s.AlterSystem(None, None)),
    st.builds(s.ShowVariable, variables),
    st.builds(s.ShowCreate, commented.map(s.ObjectKind), names),
    st.builds(
        s.Show,
        shown,
        st.none() | names,
        st.none() | texts,
    ),
    st.builds(s.AlterRename, kinds, names, names, st.booleans()),
    st.builds(s.SwapSchemas, names, names),
    st.builds(s.AlterSetRetainHistory, retainers, names, maybe_spans, st.booleans()),
    st.builds(s.AlterSinkFrom, names, names, st.booleans()),
    st.builds(s.CommentOn, commented.map(s.ObjectKind), names, st.none() | st.just("") | texts),
)


@settings(max_examples=EXAMPLES or 800, deadline=None)
@given(statements)
def test_round_trip(statement: s.Statement) -> None:
    assert parse(to_sql(statement)) == statement


fragments = st.sampled_from(
    [token for text in STATEMENTS for token in text.split()]
    + ["'", '"', "`", "/*", "*/", "--", "(", ")", ";", ",", ".", "\n", "\\", "{{", "{#", "$", "é"]
)


def position_is_told(read: Callable[[str], object], text: str) -> bool:
    """Whether `text` is read, or refused with an error of ours that has a position.

    Around a position clients show the text, which may have the value of a secret or a password.
    """
    try:
        read(text)
    except SlackwaterError as error:
        hides = any(word in text.upper() for word in ("SECRET", "CONNECTION"))
        return error.position is not None or hides
    return True


garbled = st.lists(fragments, max_size=12).map(" ".join)


continued = st.tuples(st.sampled_from(STATEMENTS), garbled).map(" ".join)


@settings(max_examples=EXAMPLES or 1500, deadline=None)
@given(garbled | st.text(max_size=30) | continued)
def test_any_text_parses_or_is_spark_or_a_user_error(text: str) -> None:
    for statement in (text, f"DECLARE c CURSOR FOR {text}"):
        assert position_is_told(parse, statement)


@settings(max_examples=EXAMPLES or 400, deadline=None)
@given(st.sampled_from([text for text in STATEMENTS if text]), st.data())
def test_a_prefix_or_a_hole_is_harmless(text: str, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, len(text)))
    for piece in (text[:begin], text[:begin] + text[end:]):
        assert position_is_told(parse, piece)


CONNECTED = [
    text
    for text in STATEMENTS
    if text.startswith(("CREATE CONN", "ALTER CONN")) and "hunter2" not in text
]


@settings(max_examples=EXAMPLES or 600, deadline=None)
@given(st.sampled_from(CONNECTED), st.data())
def test_no_error_shows_what_stands_in_a_connection(text: str, data: st.DataObject) -> None:
    """A string at any place, instead of what is there or beside it, may be a password."""
    tokens = [token for token in tokenize(text) if token.kind is not Kind.END]
    at = data.draw(st.sampled_from(tokens[2:]))
    behind = data.draw(st.sampled_from([at.start, at.end]))
    quote = data.draw(st.sampled_from(["'", '"']))
    changed = f"{text[: at.start]} {quote}hunter2{quote} {text[behind:]}"
    for piece in (changed, changed[: changed.index("hunter2") + 7]):
        said, position = complaint(piece)
        assert "hunter2" not in said
        assert position is None


def complaint(text: str) -> tuple[str, TextPosition | None]:
    """The error of a text, which may be none, and its position."""
    try:
        parse(text)
    except SlackwaterError as error:
        return str(error), error.position
    return "", None


def shape(text: str) -> object:
    """What the text means, but for the white space inside of its slices, and its positions."""
    try:
        statement = parse(text)
    except SlackwaterError as error:
        return error.condition
    return None if statement is None else tokens_of(to_sql(statement))


def tokens_of(text: str) -> list[tuple[Kind, str]]:
    return [(token.kind, token.text) for token in tokenize(text)]


@settings(max_examples=EXAMPLES or 600, deadline=None)
@given(st.sampled_from([text for text in STATEMENTS if text]), st.randoms(use_true_random=False))
def test_comments_and_white_space_do_not_matter(text: str, chance: random.Random) -> None:
    fillers = [" ", "\n", "\t", " /* ; ' */ ", " -- x '\n", " /* a /* b */ */ ", "\r\n"]
    tokens = [token for token in tokenize(text) if token.kind is not Kind.END]
    pieces = [chance.choice(fillers)]
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        raw = text[token.start : token.end]
        pieces.append(raw)
        adjacent = following is not None and following.start == token.end
        if token.kind is not Kind.BROKEN and not adjacent:
            pieces.append(chance.choice(fillers))
    assert shape("".join(pieces)) == shape(text)
