"""The grammar of CREATE. Source: surface 4 and 4.1, spec coordinator 5.3."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, cast

from slackwater.planner.parser.changefeed import read_changefeed
from slackwater.planner.parser.cluster_statements import CreateCluster, CreateClusterReplica
from slackwater.planner.parser.clusters import read_create_cluster
from slackwater.planner.parser.connection_statements import CreateConnection
from slackwater.planner.parser.connections import read_create_connection
from slackwater.planner.parser.kafka import read_kafka, refuse_missing_columns
from slackwater.planner.parser.kafka_sink import KafkaSinkConnector
from slackwater.planner.parser.kafka_sinks import read_kafka_sink
from slackwater.planner.parser.kafka_source import KafkaSource
from slackwater.planner.parser.lake_sink import LakeSinkConnector
from slackwater.planner.parser.lake_sinks import lake_options, read_lake_sink, with_lake_options
from slackwater.planner.parser.lake_source import DeltaSource, IcebergSource
from slackwater.planner.parser.lake_sources import read_lake_source
from slackwater.planner.parser.names import CATALOG, QualifiedName
from slackwater.planner.parser.options import (
    OptionValue,
    ReadValue,
    boolean,
    choice,
    integer,
    positive_duration,
    positive_integer,
    positive_number,
    read_options,
    text,
)
from slackwater.planner.parser.postgres import read_postgres
from slackwater.planner.parser.postgres_source import PostgresSource
from slackwater.planner.parser.query import read_key, read_timeless_query
from slackwater.planner.parser.refresh import RefreshOptions
from slackwater.planner.parser.secrets import read_create_secret
from slackwater.planner.parser.source_tables import CreateTableFromSource
from slackwater.planner.parser.source_tables_sql import read_for_tables, read_table_from_source
from slackwater.planner.parser.statements import (
    SESSION,
    ChangefeedSource,
    Connector,
    CreateIndex,
    CreateMaterializedView,
    CreateSecret,
    CreateSink,
    CreateSource,
    CreateTable,
    CreateView,
    CreateViewUnder,
    Envelope,
    FilesSinkConnector,
    FilesSource,
    LoadGenerator,
    TextSlice,
    WebhookSource,
)
from slackwater.planner.parser.tokens import Kind, TokenCursor
from slackwater.planner.parser.webhook import read_webhook

Created = (
    CreateTable
    | CreateTableFromSource
    | CreateCluster
    | CreateClusterReplica
    | CreateView
    | CreateViewUnder
    | CreateMaterializedView
    | CreateIndex
    | CreateSource
    | CreateSink
    | CreateSecret
    | CreateConnection
)

_REFUSED = (
    "TYPE",
    "ROLE",
    "NETWORK POLICY",
    "CONTINUAL TASK",
    "METRIC SINK",
)
_GENERATORS = "COUNTER, CLOCK, AUCTION, TPCH or KEY VALUE"
_CONNECTORS = (
    f"Sources read LOAD GENERATOR {_GENERATORS}, FILES, WEBHOOK, CHANGEFEED, KAFKA, POSTGRES, "
    "DELTA and ICEBERG."
)
_OTHER_SOURCES = ("MYSQL", "SQL SERVER")
_OTHER_SINKS = ("POSTGRES",)
_OTHER_GENERATORS = ("MARKETING",)
_COLUMNS: Mapping[type, tuple[str, str]] = {
    LoadGenerator: ("a load generator", "Leave them out."),
    WebhookSource: ("a webhook", "Leave them out."),
    ChangefeedSource: ("a changefeed", "Say those of its tables in FOR TABLES."),
    PostgresSource: ("a source of PostgreSQL", "Leave them out: the upstream has them."),
    DeltaSource: ("a source of Delta", "Leave them out: the table has them."),
    IcebergSource: ("a source of Iceberg", "Leave them out: the table has them."),
}
_LARGEST_SCALE = 10.0
_ONCE = "a name, because OR REPLACE excludes IF NOT EXISTS"


def retain_history(cursor: TokenCursor, option: str) -> int:
    """``FOR '1 hour'``, in milliseconds."""
    cursor.expect("FOR")
    return positive_duration(cursor, option)


def read_create(cursor: TokenCursor) -> Created | None:
    """A CREATE statement; None for what is Spark's."""
    start = cursor.token
    cursor.expect("CREATE")
    or_replace = cursor.accept("OR", "REPLACE")
    if cursor.accept("TABLE"):
        return _table(cursor, or_replace)
    if cursor.accept("VIEW"):
        return _view(cursor, or_replace)
    if cursor.accept("MATERIALIZED", "VIEW"):
        return _materialized_view(cursor, or_replace)
    if not or_replace and cursor.accept("REPLACEMENT", "MATERIALIZED", "VIEW"):
        return _replacement(cursor)
    for kind in _REFUSED:
        if cursor.looking_at(*kind.split()):
            raise cursor.unsupported(f"CREATE {kind}", "Leave it out.", start)
    if cursor.looking_at("CLUSTER"):
        if or_replace:
            raise cursor.unsupported("CREATE OR REPLACE CLUSTER", "DROP CLUSTER first.", start)
        return read_create_cluster(cursor)
    if cursor.looking_at("DEFAULT", "INDEX") or _is_ours(cursor):
        if or_replace:
            raise cursor.unsupported("CREATE OR REPLACE INDEX", "DROP INDEX first.", start)
        return _index(cursor)
    if cursor.looking_at("FUNCTION"):
        raise cursor.unsupported(
            "CREATE FUNCTION in the catalog slackwater",
            "CREATE FUNCTION spark_catalog.default.f and call it by that name, or "
            "CREATE TEMPORARY FUNCTION f.",
            start,
        )
    for kind, read in _KINDS:
        if not cursor.accept(kind):
            continue
        cursor.hides_text = kind in ("SECRET", "CONNECTION")
        if or_replace:
            raise cursor.unsupported(f"CREATE OR REPLACE {kind}", f"DROP {kind} first.", start)
        return read(cursor)
    return None


def _is_ours(cursor: TokenCursor) -> bool:
    """Whether an index is ours: Spark has CREATE INDEX too, for catalogs of databases."""
    if not cursor.looking_at("INDEX"):
        return False
    start = cursor.mark
    cursor.advance()
    words = [cursor.at(mark) for mark in cursor.groups()]
    cursor.rewind(start)
    ons = [i for i, token in enumerate(words) if token.is_word("ON")]
    behind = words[ons[0] + 1 :] if ons else []
    if behind and behind[0].is_word("TABLE"):
        behind = behind[1:]
    dots = sum(token.is_symbol(".") for token in behind)
    named_elsewhere = dots >= 2 and behind[0].text != CATALOG
    return not named_elsewhere and not any(token.is_word("USING") for token in behind)


def _index(cursor: TokenCursor) -> CreateIndex:
    """``CREATE [DEFAULT] INDEX [IF NOT EXISTS] [n] [IN CLUSTER c] ON rel [(exprs)] [WITH ..]``."""
    is_default = cursor.accept("DEFAULT")
    cursor.expect("INDEX")
    cursor.statement = "CREATE DEFAULT INDEX" if is_default else "CREATE INDEX"
    if_not_exists = _if_not_exists(cursor)
    unnamed = cursor.looking_at("ON") or cursor.looking_at("IN", "CLUSTER")
    name = None if unnamed else cursor.name()
    cluster = read_cluster(cursor)
    cursor.expect("ON")
    if cursor.looking_at("TABLE") and cursor.peek().kind in (Kind.WORD, Kind.QUOTED):
        cursor.advance()
    on = cursor.name("a relation")
    keys = None if is_default else _expressions(cursor)
    options: dict[str, OptionValue] = {}
    under = _Under()
    if cursor.accept("WITH"):
        known: Mapping[str, ReadValue] = {"RETAIN HISTORY": retain_history, **under.options}
        options = read_options(cursor, known)
    history = _milliseconds(options, "RETAIN HISTORY")
    return CreateIndex(name, on, keys, if_not_exists, cluster, history, under.read)


def _expressions(cursor: TokenCursor) -> tuple[TextSlice, ...]:
    """A list of expressions in parentheses, as they are written."""
    cursor.expect_symbol("(")
    found = []
    while True:
        start = cursor.mark
        while not cursor.token.is_symbol(",") and not cursor.token.is_symbol(")"):
            cursor.skip_group()
        if cursor.mark == start:
            raise cursor.syntax_error("an expression")
        found.append(cursor.slice(start))
        if cursor.accept_symbol(")"):
            return tuple(found)
        cursor.expect_symbol(",")


def _if_not_exists(cursor: TokenCursor, or_replace: bool = False) -> bool:
    at = cursor.token
    found = cursor.accept("IF", "NOT", "EXISTS")
    if found and or_replace:
        raise cursor.syntax_error(_ONCE, at)
    return found


def _table(cursor: TokenCursor, or_replace: bool) -> CreateTable | CreateTableFromSource | None:
    start = cursor.mark
    if not _has_options(cursor):
        return None
    cursor.rewind(start)
    cursor.statement = "CREATE TABLE"
    if_not_exists = _if_not_exists(cursor, or_replace)
    name = cursor.name()
    body_start = cursor.mark
    if _is_from_source(cursor):
        if or_replace:
            advice = "DROP TABLE first."
            raise cursor.unsupported("CREATE OR REPLACE TABLE ... FROM SOURCE", advice)
        return read_table_from_source(cursor, name, retain_history, if_not_exists=if_not_exists)
    if cursor.looking_at("FROM", "WEBHOOK"):
        raise cursor.unsupported(
            "CREATE TABLE ... FROM WEBHOOK", "Use CREATE SOURCE ... FROM WEBHOOK."
        )
    cursor.groups(stop=lambda: cursor.looking_at("WITH"))
    body = cursor.slice(body_start)
    cursor.expect("WITH")
    options = read_options(cursor, {"RETAIN HISTORY": retain_history})
    query = read_timeless_query(cursor) if cursor.accept("AS") else None
    cursor.expect_end("AS, or the end of the statement")
    history = _milliseconds(options, "RETAIN HISTORY")
    return CreateTable(name, body, query, history, if_not_exists, or_replace)


def _is_from_source(cursor: TokenCursor) -> bool:
    """Whether FROM SOURCE comes next, maybe after columns."""
    start = cursor.mark
    if cursor.token.is_symbol("("):
        cursor.skip_group()
    found = cursor.looking_at("FROM", "SOURCE")
    cursor.rewind(start)
    return found


def _has_options(cursor: TokenCursor) -> bool:
    """Whether there is a ``WITH (`` before the query, or FROM SOURCE or WEBHOOK: Spark has neither.

    A WITH that begins a query is followed by a name.
    """
    while not cursor.at_end and not cursor.looking_at("AS"):
        if cursor.looking_at("WITH") and cursor.peek().is_symbol("("):
            return True
        if cursor.looking_at("FROM", "SOURCE") or cursor.looking_at("FROM", "WEBHOOK"):
            return True
        if cursor.token.kind is Kind.BROKEN or cursor.token.is_symbol(")"):
            return False
        if cursor.token.is_symbol("("):
            cursor.skip_group()
        else:
            cursor.advance()
    return False


def _view(cursor: TokenCursor, or_replace: bool) -> CreateView | CreateViewUnder | None:
    """The plain forms, and those with options; None for whatever else Spark has."""
    cursor.statement = "CREATE VIEW"
    start = cursor.mark
    if _has_options(cursor):
        cursor.rewind(start)
        return _view_under(cursor, or_replace)
    cursor.rewind(start)
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if cursor.token.kind not in (Kind.WORD, Kind.QUOTED) or (if_not_exists and or_replace):
        return None
    name = cursor.name()
    columns: tuple[str, ...] | None = None
    if cursor.token.is_symbol("("):
        columns = _plain_columns(cursor)
        if columns is None:
            return None
    comment: str | None = None
    if cursor.looking_at("COMMENT") and cursor.peek().kind is Kind.STRING:
        cursor.advance()
        comment = cursor.advance().text
    if not cursor.accept("AS"):
        return None
    query = read_timeless_query(cursor)
    return CreateView(name, query, columns, or_replace, if_not_exists, comment)


def _view_under(cursor: TokenCursor, or_replace: bool) -> CreateViewUnder:
    if_not_exists = _if_not_exists(cursor, or_replace)
    name = cursor.name()
    columns = _described_columns(cursor) if cursor.token.is_symbol("(") else None
    comment = cursor.string() if cursor.accept("COMMENT") else None
    properties = _pairs(cursor) if cursor.accept("TBLPROPERTIES") else ()
    binding = None
    if cursor.accept("WITH", "SCHEMA"):
        binding = cursor.identifier("BINDING or COMPENSATION").upper()
        if binding not in ("BINDING", "COMPENSATION"):
            raise cursor.unsupported(f"WITH SCHEMA {binding}", "Leave it out.")
    cursor.expect("WITH")
    under = _Under()
    read_options(cursor, under.options)
    cursor.expect("AS")
    query = read_timeless_query(cursor)
    return CreateViewUnder(
        name, query, under.read, columns, comment, properties, binding, if_not_exists, or_replace
    )


def _described_columns(cursor: TokenCursor) -> tuple[tuple[str, str | None], ...]:
    cursor.expect_symbol("(")
    found: list[tuple[str, str | None]] = []
    while not found or cursor.accept_symbol(","):
        name = cursor.identifier("the name of a column")
        found.append((name, cursor.string() if cursor.accept("COMMENT") else None))
    cursor.expect_symbol(")")
    return tuple(found)


def _pairs(cursor: TokenCursor) -> tuple[tuple[str, str], ...]:
    """``('name' = 'value', ...)``, which may be empty."""
    cursor.expect_symbol("(")
    found: list[tuple[str, str]] = []
    while not cursor.accept_symbol(")"):
        if found:
            cursor.expect_symbol(",")
        key = cursor.string("a name as a string")
        cursor.expect_symbol("=")
        found.append((key, cursor.string("a value as a string")))
    return tuple(found)


def _plain_columns(cursor: TokenCursor) -> tuple[str, ...] | None:
    """A list of names; None if it says more about a column, such as a comment."""
    names: list[str] = []
    while True:
        cursor.advance()
        if cursor.token.kind not in (Kind.WORD, Kind.QUOTED):
            return None
        names.append(cursor.identifier())
        if cursor.accept_symbol(")"):
            return tuple(names)
        if not cursor.token.is_symbol(","):
            return None


def _materialized_view(cursor: TokenCursor, or_replace: bool) -> CreateMaterializedView:
    cursor.statement = "CREATE MATERIALIZED VIEW"
    if_not_exists = _if_not_exists(cursor, or_replace)
    name, columns = _name_and_columns(cursor)
    defined = _maintained(cursor, name, columns)
    return replace(defined, or_replace=or_replace, if_not_exists=if_not_exists)


def _replacement(cursor: TokenCursor) -> CreateMaterializedView:
    """``CREATE REPLACEMENT MATERIALIZED VIEW r [(cols)] FOR v [IN CLUSTER c] [WITH ..] AS q``."""
    cursor.statement = "CREATE REPLACEMENT MATERIALIZED VIEW"
    name, columns = _name_and_columns(cursor)
    cursor.expect("FOR")
    replaces = cursor.name("a materialized view")
    return replace(_maintained(cursor, name, columns), replaces=replaces)


def _name_and_columns(cursor: TokenCursor) -> tuple[QualifiedName, tuple[str, ...] | None]:
    return cursor.name(), cursor.identifiers() if cursor.token.is_symbol("(") else None


def _maintained(
    cursor: TokenCursor, name: QualifiedName, columns: tuple[str, ...] | None
) -> CreateMaterializedView:
    """The rest of a definition of a materialized view."""
    cluster = read_cluster(cursor)
    options: dict[str, OptionValue] = {}
    asserted: list[str] = []

    def asserted_column(cursor: TokenCursor, option: str) -> str:
        asserted.append(cursor.identifier("the name of a column"))
        return asserted[-1]

    under, refresh = _Under(), RefreshOptions()
    if cursor.accept("WITH"):
        known: Mapping[str, ReadValue] = {
            "RETAIN HISTORY": retain_history,
            "REFRESH": refresh.option,
            "ASSERT NOT NULL": asserted_column,
            **under.options,
        }
        options = read_options(cursor, known, repeated=("ASSERT NOT NULL", "REFRESH"))
    cursor.expect("AS")
    query = read_timeless_query(cursor)
    return CreateMaterializedView(
        name,
        query,
        columns,
        cluster,
        retain_history_ms=_milliseconds(options, "RETAIN HISTORY"),
        assert_not_null=tuple(asserted),
        under=under.read,
        refresh=tuple(refresh.read),
    )


class _Under:
    """Reads the options that say under what a query was defined."""

    def __init__(self) -> None:
        self.read = SESSION
        self.options: Mapping[str, ReadValue] = {
            "CURRENT SCHEMA": self._schema,
            "SETTINGS": self._settings,
        }

    def _schema(self, cursor: TokenCursor, _: str) -> bool:
        self.read = replace(self.read, schema=cursor.name("the name of a schema"))
        return True

    def _settings(self, cursor: TokenCursor, _: str) -> bool:
        self.read = replace(self.read, settings=_pairs(cursor))
        return True


def read_cluster(cursor: TokenCursor) -> str | None:
    """``IN CLUSTER c``, if it is next."""
    if not cursor.looking_at("IN", "CLUSTER"):
        return None
    cursor.expect("IN", "CLUSTER")
    return cursor.identifier("the name of a cluster")


def _milliseconds(options: Mapping[str, OptionValue], option: str) -> int | None:
    return cast("int | None", options.get(option))


def _source(cursor: TokenCursor) -> CreateSource:
    cursor.statement = "CREATE SOURCE"
    if_not_exists = _if_not_exists(cursor)
    name = cursor.name()
    columns = cursor.inside("columns")
    cluster = read_cluster(cursor)
    cursor.expect("FROM")
    connector = _connector(cursor)
    if columns is not None and (refused := _without_columns(connector)) is not None:
        shown, advice = refused
        raise cursor.unsupported(f"Columns of {shown}", advice)
    if columns is None and isinstance(connector, KafkaSource) and connector.decoding is not None:
        refuse_missing_columns(cursor, connector.decoding)
    is_webhook = isinstance(connector, WebhookSource)
    if is_webhook and cursor.looking_at("EXPOSE"):
        raise cursor.unsupported("EXPOSE PROGRESS of a webhook", "It has no positions to show.")
    progress: QualifiedName | None = None
    if cursor.accept("EXPOSE"):
        cursor.expect("PROGRESS", "AS")
        progress = cursor.name()
    options: dict[str, OptionValue] = {}
    if cursor.accept("WITH"):
        known: Mapping[str, ReadValue] = {
            **({} if is_webhook else {"TIMESTAMP INTERVAL": positive_duration}),
            "RETAIN HISTORY": retain_history,
        }
        options = read_options(cursor, known)
    return CreateSource(
        name,
        connector,
        columns,
        if_not_exists,
        cluster,
        progress,
        _milliseconds(options, "TIMESTAMP INTERVAL"),
        _milliseconds(options, "RETAIN HISTORY"),
    )


def _without_columns(connector: Connector) -> tuple[str, str] | None:
    """The words for what takes no declared columns, with advice; None: it takes them."""
    if isinstance(connector, KafkaSource):
        if connector.decoding is None:
            return "a source without FORMAT", "Its tables have columns: say them there."
        kind = connector.decoding.value.kind
        if kind in ("JSON", "CSV"):
            return None
        return f"values in the format {kind}", "Leave them out, or read the values as JSON or CSV."
    return _COLUMNS.get(type(connector))


def _connector(cursor: TokenCursor) -> Connector:
    at = cursor.token
    if cursor.accept("LOAD", "GENERATOR"):
        return _load_generator(cursor)
    if cursor.accept("FILES"):
        return _files_source(cursor)
    if cursor.accept("WEBHOOK"):
        return read_webhook(cursor)
    if cursor.accept("CHANGEFEED"):
        return read_changefeed(cursor)
    if cursor.accept("KAFKA"):
        return read_kafka(cursor)
    if cursor.accept("POSTGRES"):
        return read_postgres(cursor)
    if cursor.looking_at("DELTA") or cursor.looking_at("ICEBERG"):
        return read_lake_source(cursor)
    for other in _OTHER_SOURCES:
        if cursor.looking_at(*other.split()):
            raise cursor.unsupported(f"CREATE SOURCE ... FROM {other}", _CONNECTORS, at)
    raise cursor.syntax_error(
        "LOAD GENERATOR, FILES, WEBHOOK, CHANGEFEED, KAFKA, POSTGRES, DELTA or ICEBERG"
    )


def _load_generator(cursor: TokenCursor) -> LoadGenerator:
    for other in _OTHER_GENERATORS:
        if cursor.looking_at(*other.split()):
            raise cursor.unsupported(f"LOAD GENERATOR {other}", _CONNECTORS)
    if cursor.accept("KEY", "VALUE"):
        return _key_value(cursor)
    known: dict[str, ReadValue] = {
        "TICK INTERVAL": positive_duration,
        "AS OF": integer,
        "UP TO": integer,
    }
    kind: Literal["COUNTER", "AUCTION", "CLOCK", "TPCH"]
    if cursor.accept("COUNTER"):
        kind, known["MAX CARDINALITY"] = "COUNTER", integer
    elif cursor.accept("CLOCK"):
        kind = "CLOCK"
    elif cursor.accept("AUCTION"):
        kind, known["SEED"] = "AUCTION", integer
    elif cursor.accept("TPCH"):
        kind, known["SEED"] = "TPCH", integer
        known["SCALE FACTOR"] = positive_number(_LARGEST_SCALE)
    else:
        raise cursor.syntax_error(_GENERATORS)
    options = read_options(cursor, known) if cursor.token.is_symbol("(") else {}
    for_all_tables = cursor.looking_at("FOR", "ALL", "TABLES")
    if for_all_tables:
        if kind not in ("AUCTION", "TPCH"):
            raise cursor.unsupported(f"FOR ALL TABLES of LOAD GENERATOR {kind}", "Leave it out.")
        cursor.expect("FOR", "ALL", "TABLES")
    at = cursor.token
    for_tables = read_for_tables(cursor)
    if for_tables and kind not in ("AUCTION", "TPCH"):
        raise cursor.unsupported(f"FOR TABLES of LOAD GENERATOR {kind}", "Leave it out.", at)
    return LoadGenerator(
        kind,
        _milliseconds(options, "TICK INTERVAL"),
        _milliseconds(options, "AS OF"),
        _milliseconds(options, "UP TO"),
        cast("int | None", options.get("MAX CARDINALITY")),
        cast("int | None", options.get("SEED")),
        for_all_tables,
        cast("float | None", options.get("SCALE FACTOR")),
        for_tables=for_tables,
    )


def _key_value(cursor: TokenCursor) -> LoadGenerator:
    at = cursor.token
    required = ("KEYS", "SNAPSHOT ROUNDS", "VALUE SIZE", "PARTITIONS", "BATCH SIZE", "SEED")
    options = read_options(
        cursor,
        {
            **dict.fromkeys(required, positive_integer),
            "SEED": integer,
            "TRANSACTIONAL SNAPSHOT": boolean,
            "TICK INTERVAL": positive_duration,
        },
    )
    _require(cursor, options, *required)
    keys, partitions = int(options["KEYS"]), int(options["PARTITIONS"])
    batch = int(options["BATCH SIZE"])
    if keys % (partitions * batch):
        raise cursor.error(
            "SLACKWATER_INVALID_OPTION",
            at,
            option="KEYS",
            statement=cursor.statement,
            value=str(keys),
            reason=f"it is no multiple of PARTITIONS times BATCH SIZE, {partitions * batch}",
        )
    return LoadGenerator(
        "KEY VALUE",
        tick_interval_ms=_milliseconds(options, "TICK INTERVAL"),
        seed=int(options["SEED"]),
        keys=keys,
        partitions=partitions,
        snapshot_rounds=int(options["SNAPSHOT ROUNDS"]),
        transactional_snapshot=cast("bool | None", options.get("TRANSACTIONAL SNAPSHOT")),
        value_size=int(options["VALUE SIZE"]),
        batch_size=batch,
        envelope=_source_envelope(cursor),
    )


def _source_envelope(cursor: TokenCursor) -> Literal["NONE", "UPSERT"] | None:
    if not cursor.accept("ENVELOPE"):
        return None
    if cursor.accept("NONE"):
        return "NONE"
    if cursor.accept("UPSERT"):
        return "UPSERT"
    raise cursor.syntax_error("NONE or UPSERT")


def _files_source(cursor: TokenCursor) -> FilesSource:
    at = cursor.token
    known: Mapping[str, ReadValue] = {
        "PATH": text,
        "FORMAT": choice("CSV", "JSON", "PARQUET"),
        "HEADER": boolean,
        "DELIMITER": text,
        "NULL": text,
        "PATTERN": text,
        "ON ERROR": choice("STALL", "SKIP", "PROPAGATE"),
    }
    options = read_options(cursor, known)
    _require(cursor, options, "PATH", "FORMAT")
    if options["FORMAT"] != "CSV":
        for option in ("HEADER", "DELIMITER", "NULL"):
            if option in options:
                raise cursor.error(
                    "SLACKWATER_INVALID_OPTION",
                    at,
                    option=option,
                    statement=cursor.statement,
                    value=str(options[option]).lower(),
                    reason="it is an option of FORMAT CSV",
                )
    return FilesSource(
        str(options["PATH"]),
        cast("Literal['CSV', 'JSON', 'PARQUET']", options["FORMAT"]),
        cast("bool | None", options.get("HEADER")),
        cast("str | None", options.get("DELIMITER")),
        cast("str | None", options.get("PATTERN")),
        cast("str | None", options.get("NULL")),
        cast("Literal['STALL', 'SKIP', 'PROPAGATE']", options.get("ON ERROR", "STALL")),
    )


def _require(cursor: TokenCursor, options: Mapping[str, OptionValue], *required: str) -> None:
    for option in required:
        if option not in options:
            raise cursor.syntax_error(f"the option {option}", cursor.at(cursor.mark - 1))


def _sink(cursor: TokenCursor) -> CreateSink:
    cursor.statement = "CREATE SINK"
    if_not_exists = _if_not_exists(cursor)
    unnamed = cursor.looking_at("FROM") or cursor.looking_at("IN", "CLUSTER")
    name = None if unnamed else cursor.name()
    cluster = read_cluster(cursor)
    cursor.expect("FROM")
    from_name = cursor.name("a relation")
    cursor.expect("INTO")
    connector: FilesSinkConnector | KafkaSinkConnector | LakeSinkConnector
    known: dict[str, ReadValue] = {"SNAPSHOT": boolean}
    if cursor.accept("KAFKA"):
        connector, envelope = read_kafka_sink(cursor)
    elif cursor.looking_at("DELTA") or cursor.looking_at("ICEBERG"):
        connector, envelope = read_lake_sink(cursor)
        known |= lake_options(connector)
    else:
        connector, envelope = _files_sink(cursor), _sink_envelope(cursor)
    options = read_options(cursor, known) if cursor.accept("WITH") else {}
    snapshot = options.get("SNAPSHOT") is not False
    if isinstance(connector, LakeSinkConnector):
        connector = with_lake_options(cursor, connector, envelope, options)
    return CreateSink(name, from_name, connector, envelope, if_not_exists, cluster, snapshot)


def _files_sink(cursor: TokenCursor) -> FilesSinkConnector:
    for other in _OTHER_SINKS:
        if cursor.looking_at(other):
            raise cursor.unsupported(
                f"CREATE SINK ... INTO {other}", "Sinks write FILES, KAFKA, DELTA and ICEBERG."
            )
    cursor.expect("FILES")
    options = read_options(cursor, {"PATH": text, "FORMAT": choice("PARQUET", "JSON")})
    _require(cursor, options, "PATH", "FORMAT")
    return FilesSinkConnector(
        str(options["PATH"]), cast("Literal['PARQUET', 'JSON']", options["FORMAT"])
    )


def _sink_envelope(cursor: TokenCursor) -> Envelope:
    """``ENVELOPE UPSERT KEY (a)``; the key may also stand before ENVELOPE."""
    first = read_key(cursor) if cursor.looking_at("KEY") else ()
    if not first and not cursor.looking_at("ENVELOPE"):
        return Envelope("DIFF")
    cursor.expect("ENVELOPE")
    if cursor.accept("DIFF"):
        if first:
            raise cursor.syntax_error("UPSERT or DEBEZIUM", cursor.at(cursor.mark - 1))
        return Envelope("DIFF")
    if cursor.accept("DEBEZIUM"):
        follows = cursor.looking_at("KEY") or cursor.token.is_symbol("(")
        return Envelope("DEBEZIUM", first or (read_key(cursor) if follows else ()))
    if cursor.accept("UPSERT"):
        return Envelope("UPSERT", first or read_key(cursor))
    raise cursor.syntax_error("DIFF, UPSERT or DEBEZIUM")


_KINDS: Sequence[tuple[str, Callable[[TokenCursor], Created]]] = (
    ("SOURCE", _source),
    ("SINK", _sink),
    ("SECRET", read_create_secret),
    ("CONNECTION", read_create_connection),
)
