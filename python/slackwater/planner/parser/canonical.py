"""Statements as canonical text: ``parse(to_sql(s)) == s``. SHOW CREATE shows this."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slackwater.planner.parser.cluster_sql import cluster_sql
from slackwater.planner.parser.cluster_statements import ShowCreateCluster
from slackwater.planner.parser.connection_sql import connection_sql
from slackwater.planner.parser.connection_statements import (
    AlterConnection,
    CreateConnection,
    RotateKeys,
    ValidateConnection,
)
from slackwater.planner.parser.durations import format_duration
from slackwater.planner.parser.kafka_sink import KafkaSinkConnector
from slackwater.planner.parser.kafka_sinks import kafka_sink_sql
from slackwater.planner.parser.kafka_source import (
    KafkaSource,
    RefreshSchema,
    ResnapshotSource,
    SkipLost,
)
from slackwater.planner.parser.kafka_sql import kafka_sql
from slackwater.planner.parser.lake_sink import LakeSinkConnector
from slackwater.planner.parser.lake_sinks import lake_options_sql, lake_sink_sql
from slackwater.planner.parser.lake_source import DeltaSource, IcebergSource
from slackwater.planner.parser.lake_sources import lake_source_sql
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.postgres_source import PostgresSource
from slackwater.planner.parser.postgres_sql import postgres_sql
from slackwater.planner.parser.refresh import format_time
from slackwater.planner.parser.source_tables import CreateTableFromSource, RefreshReferences
from slackwater.planner.parser.source_tables_sql import (
    for_tables_sql,
    table_from_source_sql,
    table_options_sql,
)
from slackwater.planner.parser.statements import (
    AlterApplyReplacement,
    AlterRename,
    AlterSecret,
    AlterSetCluster,
    AlterSetRetainHistory,
    AlterSinkFrom,
    AlterSourceAddTable,
    AlterSystem,
    AsOf,
    Begin,
    ChangefeedSource,
    ChangefeedTable,
    CheckInput,
    CloseCursor,
    CommentOn,
    Commit,
    CreateIndex,
    CreateMaterializedView,
    CreateSecret,
    CreateSink,
    CreateSource,
    CreateTable,
    CreateView,
    CreateViewUnder,
    DeclareCursor,
    DefinedUnder,
    DropObjects,
    Envelope,
    ExplainAnalyze,
    ExplainIncremental,
    ExplainPlan,
    ExplainTimestamp,
    Fetch,
    FilesSinkConnector,
    FilesSource,
    LoadGenerator,
    Maintained,
    Query,
    Refresh,
    RefreshAt,
    RefreshAtCreation,
    RefreshEach,
    ReplayDeadLetters,
    ResetVariable,
    Rollback,
    SetVariable,
    Show,
    ShowAll,
    ShowCreate,
    ShowVariable,
    Statement,
    Subscribe,
    SwapSchemas,
    WebhookSource,
)
from slackwater.planner.parser.variables import BOUNDED_STALENESS
from slackwater.repr.relation import quote_identifier, quote_string

_HIDDEN = "AS '<redacted>'"


def to_sql(statement: Statement) -> str:
    """The canonical text of `statement`: keywords in upper case, every name quoted.

    Queries and columns stand as the user wrote them.
    """
    return _join(_render(statement))


def _join(parts: Iterable[str]) -> str:
    return " ".join(part for part in parts if part)


def _render(statement: Statement) -> Iterable[str]:
    match statement:
        case CreateTable() | CreateView() | CreateViewUnder() | CreateMaterializedView():
            return _create_relation(statement)
        case CreateIndex():
            return _create_index(statement)
        case CreateTableFromSource():
            history = _retain_history(statement.retain_history_ms)
            options = _with(*table_options_sql(statement), history)
            return (*table_from_source_sql(statement), options)
        case CreateSource():
            return _create_source(statement)
        case CreateSink():
            return _create_sink(statement)
        case CreateSecret(name=name, if_not_exists=if_not_exists):
            return ("CREATE SECRET", "IF NOT EXISTS" if if_not_exists else "", name.sql, _HIDDEN)
        case AlterSecret(name=name, if_exists=if_exists):
            return ("ALTER SECRET", "IF EXISTS" if if_exists else "", name.sql, _HIDDEN)
        case CreateConnection() | AlterConnection() | RotateKeys() | ValidateConnection():
            return connection_sql(statement)
        case (
            DropObjects()
            | AlterRename()
            | SwapSchemas()
            | AlterSetCluster()
            | AlterSetRetainHistory()
            | AlterSinkFrom()
            | AlterApplyReplacement()
            | AlterSourceAddTable()
            | ReplayDeadLetters()
            | SkipLost()
            | ResnapshotSource()
            | RefreshReferences()
            | RefreshSchema()
            | CommentOn()
        ):
            return _change(statement)
        case Show() | ShowCreate() | ShowCreateCluster() | ShowVariable() | ShowAll():
            return _show(statement)
        case AlterSystem() | SetVariable() | ResetVariable() | Begin() | Commit() | Rollback():
            return _session(statement)
        case Subscribe() | DeclareCursor() | Fetch() | CloseCursor():
            return _read(statement)
        case ExplainTimestamp(query, shape):
            return ("EXPLAIN TIMESTAMP AS", shape, "FOR", _query(query))
        case ExplainIncremental(target):
            if isinstance(target, QualifiedName):
                return ("EXPLAIN INCREMENTAL FOR MATERIALIZED VIEW", target.sql)
            return ("EXPLAIN INCREMENTAL FOR", target.text)
        case ExplainAnalyze(name):
            return ("EXPLAIN ANALYZE FOR MATERIALIZED VIEW", name.sql)
        case ExplainPlan(stage, target, shape):
            question = ("EXPLAIN", stage, "PLAN AS", shape, "FOR")
            if isinstance(target, Maintained):
                return (*question, target.kind.value, target.name.sql)
            return (*question, target.text)
        case _:
            return cluster_sql(statement)


def _create_relation(
    s: CreateTable | CreateView | CreateViewUnder | CreateMaterializedView,
) -> Iterable[str]:
    yield "CREATE OR REPLACE" if s.or_replace else "CREATE"
    exists = "IF NOT EXISTS" if s.if_not_exists else ""
    match s:
        case CreateTable():
            history = _retain_history(s.retain_history_ms)
            yield from ("TABLE", exists, s.name.sql, s.body.text, _with(history))
            if s.as_query is not None:
                yield from ("AS", s.as_query.text)
        case CreateView():
            yield from ("VIEW", exists, s.name.sql, _columns(s.columns))
            yield "" if s.comment is None else f"COMMENT {quote_string(s.comment)}"
            yield from ("AS", s.query.text)
        case CreateViewUnder():
            described = (
                _join(
                    (
                        quote_identifier(name),
                        "" if text is None else f"COMMENT {quote_string(text)}",
                    )
                )
                for name, text in s.columns or ()
            )
            yield from ("VIEW", exists, s.name.sql)
            yield "" if s.columns is None else f"({', '.join(described)})"
            yield "" if s.comment is None else f"COMMENT {quote_string(s.comment)}"
            yield f"TBLPROPERTIES ({_pairs(s.properties)})" if s.properties else ""
            yield "" if s.binding is None else f"WITH SCHEMA {s.binding}"
            yield _with(*_under(s.under))
            yield from ("AS", s.query.text)
        case CreateMaterializedView():
            yield "" if s.replaces is None else "REPLACEMENT"
            yield from ("MATERIALIZED VIEW", exists, s.name.sql, _columns(s.columns))
            yield "" if s.replaces is None else f"FOR {s.replaces.sql}"
            asserted = (f"ASSERT NOT NULL {quote_identifier(c)}" for c in s.assert_not_null)
            history = _retain_history(s.retain_history_ms)
            options = (history, *map(_refresh, s.refresh), *asserted, *_under(s.under))
            yield from (_cluster(s.cluster), _with(*options))
            yield from ("AS", s.query.text)


def _refresh(refresh: Refresh) -> str:
    match refresh:
        case RefreshAtCreation():
            return "REFRESH AT CREATION"
        case RefreshAt(time_ms):
            return f"REFRESH AT {quote_string(format_time(time_ms))}"
        case RefreshEach(interval_ms, aligned_to_ms):
            every = f"REFRESH EVERY {_duration(interval_ms)}"
            if aligned_to_ms is None:
                return every
            return f"{every} ALIGNED TO {quote_string(format_time(aligned_to_ms))}"


def _create_index(s: CreateIndex) -> Iterable[str]:
    yield "CREATE DEFAULT INDEX" if s.keys is None else "CREATE INDEX"
    yield "IF NOT EXISTS" if s.if_not_exists else ""
    yield from ("" if s.name is None else s.name.sql, _cluster(s.cluster), "ON", s.on.sql)
    yield "" if s.keys is None else f"({', '.join(key.text for key in s.keys)})"
    yield _with(_retain_history(s.retain_history_ms), *_under(s.under))


def _under(under: DefinedUnder) -> Iterable[str]:
    if under.schema is not None:
        yield f"CURRENT SCHEMA {under.schema.sql}"
    if under.settings is not None:
        yield f"SETTINGS ({_pairs(under.settings)})"


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{quote_string(key)} = {quote_string(value)}" for key, value in pairs)


def _create_source(s: CreateSource) -> Iterable[str]:
    yield from ("CREATE SOURCE", "IF NOT EXISTS" if s.if_not_exists else "", s.name.sql)
    yield "" if s.columns is None else f"({s.columns.text})"
    yield from (_cluster(s.cluster), "FROM")
    match s.connector:
        case LoadGenerator() as generator:
            yield from _load_generator(generator)
        case FilesSource() as files:
            yield from ("FILES", _files_source(files))
        case WebhookSource() as webhook:
            yield f"WEBHOOK ({', '.join(_webhook(webhook))})"
        case ChangefeedSource() as feed:
            yield from _changefeed(feed)
        case KafkaSource() as topic:
            yield kafka_sql(topic)
        case PostgresSource() as publication:
            yield postgres_sql(publication)
        case DeltaSource() | IcebergSource() as table:
            yield lake_source_sql(table)
    if s.expose_progress is not None:
        yield f"EXPOSE PROGRESS AS {s.expose_progress.sql}"
    interval = s.timestamp_interval_ms
    yield _with(
        "" if interval is None else f"TIMESTAMP INTERVAL {_duration(interval)}",
        _retain_history(s.retain_history_ms),
    )


def _load_generator(g: LoadGenerator) -> Iterable[str]:
    yield f"LOAD GENERATOR {g.kind}"
    options = (
        [] if g.tick_interval_ms is None else [f"TICK INTERVAL {_duration(g.tick_interval_ms)}"]
    )
    for option, value in (
        ("AS OF", g.as_of_ms),
        ("UP TO", g.up_to_ms),
        ("MAX CARDINALITY", g.max_cardinality),
        (
            "SCALE FACTOR",
            None if g.scale_factor is None else f"{g.scale_factor:f}".rstrip("0").rstrip("."),
        ),
        ("KEYS", g.keys),
        ("PARTITIONS", g.partitions),
        ("SNAPSHOT ROUNDS", g.snapshot_rounds),
        (
            "TRANSACTIONAL SNAPSHOT",
            None if g.transactional_snapshot is None else _boolean(g.transactional_snapshot),
        ),
        ("VALUE SIZE", g.value_size),
        ("BATCH SIZE", g.batch_size),
        ("SEED", g.seed),
    ):
        options += [] if value is None else [f"{option} {value}"]
    yield f"({', '.join(options)})" if options else ""
    yield "FOR ALL TABLES" if g.for_all_tables else for_tables_sql(g.for_tables)
    yield "" if g.envelope is None else f"ENVELOPE {g.envelope}"


def _files_source(f: FilesSource) -> str:
    options = [f"PATH {quote_string(f.path)}", f"FORMAT {f.format}"]
    options += [] if f.header is None else [f"HEADER {_boolean(f.header)}"]
    options += [] if f.delimiter is None else [f"DELIMITER {quote_string(f.delimiter)}"]
    options += [] if f.null_text is None else [f"NULL {quote_string(f.null_text)}"]
    options += [] if f.pattern is None else [f"PATTERN {quote_string(f.pattern)}"]
    options += [] if f.on_error == "STALL" else [f"ON ERROR {f.on_error}"]
    return f"({', '.join(options)})"


def _webhook(w: WebhookSource) -> Iterable[str]:
    yield f"BODY FORMAT {w.format}"
    for each in w.columns:
        name = quote_identifier(each.column)
        kind = "BYTES" if each.is_bytes else ""
        yield _join(("INCLUDE HEADER", quote_string(each.header), "AS", name, kind))
    if w.rules is not None:
        rules = (f"{'NOT ' if r.is_blocked else ''}{quote_string(r.header)}" for r in w.rules)
        yield _join(("INCLUDE HEADERS", f"({', '.join(rules)})" if w.rules else ""))
    if w.check is not None:
        inputs = ", ".join(map(_check_input, w.check.inputs))
        yield f"CHECK ({_join((f'WITH ({inputs})' if inputs else '', w.check.condition.text))})"


def _changefeed(c: ChangefeedSource) -> Iterable[str]:
    yield "CHANGEFEED" if c.path is None else "CHANGEFEED FILES"
    options = ["FORMAT COCKROACH"]
    options += [] if c.path is None else [f"PATH {quote_string(c.path)}"]
    options += [f"FEEDS ({', '.join(map(quote_string, c.feeds))})"] if c.feeds else []
    options += [] if c.lookahead is None else [f"LOOKAHEAD {c.lookahead}"]
    options += [] if c.on_late == "DROP" else [f"ON LATE {c.on_late}"]
    yield f"({', '.join(options)})"
    yield f"FOR TABLES ({', '.join(map(_changefeed_table, c.tables))})"


def _changefeed_table(t: ChangefeedTable) -> str:
    extras = "" if t.extras is None else f"EXTRAS {quote_identifier(t.extras)}"
    columns = f"({t.columns.text})"
    return _join((quote_identifier(t.name), columns, f"KEY {_columns(t.key)}", extras))


def _check_input(i: CheckInput) -> str:
    secret = "" if i.secret is None else i.secret.sql
    alias = "" if i.alias is None else f"AS {quote_identifier(i.alias)}"
    return _join((i.kind, secret, alias, "BYTES" if i.is_bytes else ""))


def _create_sink(s: CreateSink) -> Iterable[str]:
    yield from ("CREATE SINK", "IF NOT EXISTS" if s.if_not_exists else "")
    yield "" if s.name is None else s.name.sql
    yield from (_cluster(s.cluster), "FROM", s.from_name.sql, "INTO")
    more: tuple[str, ...] = ()
    if isinstance(s.connector, KafkaSinkConnector):
        yield kafka_sink_sql(s.connector, s.envelope)
    elif isinstance(s.connector, LakeSinkConnector):
        yield lake_sink_sql(s.connector, s.envelope)
        more = lake_options_sql(s.connector)
    else:
        yield from (_files_sink(s.connector), _envelope(s.envelope))
    yield _with("" if s.snapshot else "SNAPSHOT FALSE", *more)


def _files_sink(f: FilesSinkConnector) -> str:
    return f"FILES (PATH {quote_string(f.path)}, FORMAT {f.format})"


def _envelope(e: Envelope) -> str:
    return _join(("ENVELOPE", e.kind, f"KEY {_columns(e.key)}" if e.key else ""))


def _change(
    s: DropObjects
    | AlterRename
    | SwapSchemas
    | AlterSetCluster
    | AlterSetRetainHistory
    | AlterSinkFrom
    | AlterApplyReplacement
    | AlterSourceAddTable
    | ReplayDeadLetters
    | SkipLost
    | ResnapshotSource
    | RefreshReferences
    | RefreshSchema
    | CommentOn,
) -> Iterable[str]:
    match s:
        case DropObjects(kind, names, if_exists, cascade):
            ending = {None: "", True: "CASCADE", False: "RESTRICT"}[cascade]
            objects = ", ".join(name.sql for name in names)
            return ("DROP", kind.value, "IF EXISTS" if if_exists else "", objects, ending)
        case AlterRename(kind, name, new_name, if_exists):
            exists = "IF EXISTS" if if_exists else ""
            return ("ALTER", kind.value, exists, name.sql, "RENAME TO", new_name.sql)
        case SwapSchemas(name, other):
            return ("ALTER SCHEMA", name.sql, "SWAP WITH", other.sql)
        case AlterSetCluster(kind, name, cluster, if_exists):
            exists = "IF EXISTS" if if_exists else ""
            moved = f"SET CLUSTER {quote_identifier(cluster)}"
            return ("ALTER", kind.value, exists, name.sql, moved)
        case AlterSetRetainHistory(kind, name, history, if_exists):
            exists = "IF EXISTS" if if_exists else ""
            action = "RESET (RETAIN HISTORY)" if history is None else ""
            action = action or f"SET ({_retain_history(history)})"
            return ("ALTER", kind.value, exists, name.sql, action)
        case AlterSinkFrom(name, from_name, if_exists):
            exists = "IF EXISTS" if if_exists else ""
            return ("ALTER SINK", exists, name.sql, "SET FROM", from_name.sql)
        case AlterApplyReplacement(name, replacement, if_exists):
            exists = "IF EXISTS" if if_exists else ""
            return (
                "ALTER MATERIALIZED VIEW",
                exists,
                name.sql,
                "APPLY REPLACEMENT",
                replacement.sql,
            )
        case AlterSourceAddTable(name, table, if_exists):
            exists = "IF EXISTS" if if_exists else ""
            return ("ALTER SOURCE", exists, name.sql, "ADD TABLE", _changefeed_table(table))
        case ReplayDeadLetters(name, if_exists):
            exists = "IF EXISTS" if if_exists else ""
            return ("ALTER SOURCE", exists, name.sql, "REPLAY DEAD LETTERS")
        case SkipLost(name, if_exists):
            exists = "IF EXISTS" if if_exists else ""
            return ("ALTER SOURCE", exists, name.sql, "SKIP LOST")
        case ResnapshotSource(name, if_exists, tables):
            exists = "IF EXISTS" if if_exists else ""
            return ("ALTER SOURCE", exists, name.sql, "RESNAPSHOT", _tables(tables))
        case RefreshReferences(name, if_exists):
            exists = "IF EXISTS" if if_exists else ""
            return ("ALTER SOURCE", exists, name.sql, "REFRESH REFERENCES")
        case RefreshSchema(name, if_exists, tables):
            exists = "IF EXISTS" if if_exists else ""
            return ("ALTER SOURCE", exists, name.sql, "REFRESH SCHEMA", _tables(tables))
        case CommentOn(kind, name, text):
            value = "NULL" if text is None else quote_string(text)
            return ("COMMENT ON", kind.value, name.sql, "IS", value)


def _tables(names: Sequence[QualifiedName]) -> str:
    return f"TABLES ({', '.join(each.sql for each in names)})" if names else ""


def _show(
    s: Show | ShowCreate | ShowCreateCluster | ShowVariable | ShowAll,
) -> Iterable[str]:
    match s:
        case Show():
            yield from ("SHOW", s.kind.value)
            yield "" if s.from_schema is None else f"FROM {s.from_schema.sql}"
            yield "" if s.on is None else f"ON {s.on.sql}"
            yield _cluster(s.cluster)
            yield "" if s.like is None else f"LIKE {quote_string(s.like)}"
        case ShowCreate(kind, name):
            yield from ("SHOW CREATE", kind.value, name.sql)
        case ShowCreateCluster(cluster):
            yield from ("SHOW CREATE CLUSTER", quote_identifier(cluster))
        case ShowVariable(name=variable):
            yield from ("SHOW", _variable(variable))
        case ShowAll():
            yield "SHOW ALL"


def _session(
    s: AlterSystem | SetVariable | ResetVariable | Begin | Commit | Rollback,
) -> Iterable[str]:
    match s:
        case AlterSystem(name=str(name), value=str(value)):
            return ("ALTER SYSTEM SET", quote_identifier(name), "=", quote_string(value))
        case AlterSystem(name=name):
            return ("ALTER SYSTEM RESET", "ALL" if name is None else quote_identifier(name))
        case SetVariable(name, value, local):
            text = "DEFAULT" if value is None else quote_string(value)
            return ("SET LOCAL" if local else "SET", _variable(name), "=", text)
        case ResetVariable(name):
            return ("RESET", _variable(name))
        case Begin(isolation, read_only):
            level = "" if isolation is None else f"ISOLATION LEVEL {_level(isolation)}"
            mode = {None: "", True: "READ ONLY", False: "READ WRITE"}[read_only]
            return ("BEGIN", level, mode)
        case Commit():
            return ("COMMIT",)
        case Rollback():
            return ("ROLLBACK",)


def _level(isolation: str) -> str:
    """An isolation level; how stale reads may be is a string of its own."""
    _, bounded, duration = isolation.partition(f"{BOUNDED_STALENESS} ")
    return f"{BOUNDED_STALENESS.upper()} {quote_string(duration)}" if bounded else isolation.upper()


def _read(s: Subscribe | DeclareCursor | Fetch | CloseCursor) -> Iterable[str]:
    match s:
        case Subscribe():
            return _subscribe(s)
        case DeclareCursor(name, Subscribe() as subscribe):
            start = f"DECLARE {quote_identifier(name)} CURSOR FOR"
            return (start, *_subscribe(subscribe))
        case DeclareCursor(name, Query() as query):
            return ("DECLARE", quote_identifier(name), "CURSOR FOR", _query(query))
        case Fetch(cursor, count, timeout_ms):
            timeout = "" if timeout_ms is None else f"WITH (TIMEOUT = {_duration(timeout_ms)})"
            number = "ALL" if count is None else str(count)
            return ("FETCH", number, quote_identifier(cursor), timeout)
        case CloseCursor(name):
            return ("CLOSE", quote_identifier(name))
    return ()


def _subscribe(s: Subscribe) -> Iterable[str]:
    yield "SUBSCRIBE TO"
    yield s.target.sql if isinstance(s.target, QualifiedName) else f"({s.target.text})"
    yield _with("" if s.snapshot else "SNAPSHOT FALSE", "PROGRESS" if s.progress else "")
    yield "" if s.as_of is None else _as_of(s.as_of)
    yield "" if s.up_to is None else f"UP TO {s.up_to.text}"
    yield "" if s.envelope is None else _envelope(s.envelope)
    order = s.within_timestamp_order_by
    yield "" if order is None else f"WITHIN TIMESTAMP ORDER BY {order.text}"


def _query(query: Query) -> str:
    return query.text.text if query.as_of is None else f"{query.text.text} {_as_of(query.as_of)}"


def _as_of(as_of: AsOf) -> str:
    return _join(("AS OF", "AT LEAST" if as_of.kind == "at_least" else "", as_of.expression.text))


def _with(*options: str) -> str:
    present = [option for option in options if option]
    return f"WITH ({', '.join(present)})" if present else ""


def _retain_history(duration_ms: int | None) -> str:
    return "" if duration_ms is None else f"RETAIN HISTORY FOR {_duration(duration_ms)}"


def _duration(duration_ms: int) -> str:
    return f"'{format_duration(duration_ms)}'"


def _cluster(cluster: str | None) -> str:
    return "" if cluster is None else f"IN CLUSTER {quote_identifier(cluster)}"


def _columns(columns: tuple[str, ...] | None) -> str:
    return "" if columns is None else f"({', '.join(map(quote_identifier, columns))})"


def _boolean(value: bool) -> str:
    return "TRUE" if value else "FALSE"


def _variable(name: str) -> str:
    return f"slackwater.{quote_identifier(name)}"
