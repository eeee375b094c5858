"""The statements of Slackwater as values.

A value has the text that the user wrote, nothing resolved: names may be short, queries are text.
`parse` reads them, `canonical` writes them. Source: surface 4, spec coordinator 5.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Literal

from slackwater.planner.parser.cluster_statements import ClusterStatement, ShowCreateCluster
from slackwater.planner.parser.connection_statements import ConnectionStatement
from slackwater.planner.parser.kafka_sink import KafkaSinkConnector
from slackwater.planner.parser.kafka_source import (
    KafkaSource,
    RefreshSchema,
    ResnapshotSource,
    SkipLost,
)
from slackwater.planner.parser.lake_sink import LakeSinkConnector
from slackwater.planner.parser.lake_source import DeltaSource, IcebergSource
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.postgres_source import PostgresSource
from slackwater.planner.parser.source_tables import (
    CreateTableFromSource,
    ReferencedTable,
    RefreshReferences,
)


@dataclass(frozen=True, slots=True)
class TextSlice:
    """A piece of the statement's text, exactly as it was written.

    `start` is its offset, for positions of errors inside it; it is no part of its value.
    """

    text: str
    start: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class AsOf:
    """``AS OF expression``, or ``AS OF AT LEAST expression``: a time of reading."""

    kind: Literal["at", "at_least"]
    expression: TextSlice


class ObjectKind(enum.Enum):
    """A kind of objects, by its words in statements."""

    TABLE = "TABLE"
    VIEW = "VIEW"
    MATERIALIZED_VIEW = "MATERIALIZED VIEW"
    SOURCE = "SOURCE"
    SINK = "SINK"
    INDEX = "INDEX"
    SECRET = "SECRET"
    CONNECTION = "CONNECTION"
    SCHEMA = "SCHEMA"
    COLUMN = "COLUMN"


class ShowKind(enum.Enum):
    """A kind of listings, by the words after SHOW."""

    OBJECTS = "OBJECTS"
    SOURCES = "SOURCES"
    SINKS = "SINKS"
    INDEXES = "INDEXES"
    MATERIALIZED_VIEWS = "MATERIALIZED VIEWS"
    VIEWS = "VIEWS"
    SECRETS = "SECRETS"
    CONNECTIONS = "CONNECTIONS"
    CLUSTERS = "CLUSTERS"
    CLUSTER_REPLICAS = "CLUSTER REPLICAS"
    NOTICES = "NOTICES"


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE with options that Spark's grammar does not have.

    `body` is everything between the name and WITH: columns and Spark's own clauses.
    """

    name: QualifiedName
    body: TextSlice
    as_query: TextSlice | None = None
    retain_history_ms: int | None = None
    if_not_exists: bool = False
    or_replace: bool = False

    @property
    def spark_text(self) -> str:
        """The same statement without our options, for Spark's parser."""
        words = ["CREATE", "OR REPLACE" if self.or_replace else "", "TABLE"]
        words += ["IF NOT EXISTS" if self.if_not_exists else "", self.name.sql, self.body.text]
        words += ["" if self.as_query is None else f"AS {self.as_query.text}"]
        return " ".join(word for word in words if word)


@dataclass(frozen=True, slots=True)
class DefinedUnder:
    """The schema for the names of a query, and the settings that can change its result.

    None: those of the session that defines it.
    """

    schema: QualifiedName | None = None
    settings: tuple[tuple[str, str], ...] | None = None


SESSION = DefinedUnder()


@dataclass(frozen=True, slots=True)
class CreateView:
    name: QualifiedName
    query: TextSlice
    columns: tuple[str, ...] | None = None
    or_replace: bool = False
    if_not_exists: bool = False
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class CreateViewUnder:
    """CREATE VIEW that says under what it was defined, as SHOW CREATE prints it.

    `columns` are their names and comments; `binding` is Spark's mode of its schema.
    """

    name: QualifiedName
    query: TextSlice
    under: DefinedUnder
    columns: tuple[tuple[str, str | None], ...] | None = None
    comment: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    binding: str | None = None
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class RefreshAtCreation:
    """``REFRESH AT CREATION``."""


@dataclass(frozen=True, slots=True)
class RefreshAt:
    """``REFRESH AT time``, in milliseconds since the epoch."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class RefreshEach:
    """``REFRESH EVERY interval ALIGNED TO time``; without a time, the time of the creation."""

    interval_ms: int
    aligned_to_ms: int | None = None


Refresh = RefreshAtCreation | RefreshAt | RefreshEach


@dataclass(frozen=True, slots=True)
class CreateMaterializedView:
    """`refresh`: when it is refreshed; none: with each commit.

    With `replaces` it is CREATE REPLACEMENT MATERIALIZED VIEW ... FOR that view.
    """

    name: QualifiedName
    query: TextSlice
    columns: tuple[str, ...] | None = None
    cluster: str | None = None
    or_replace: bool = False
    if_not_exists: bool = False
    retain_history_ms: int | None = None
    assert_not_null: tuple[str, ...] = ()
    under: DefinedUnder = SESSION
    refresh: tuple[Refresh, ...] = ()
    replaces: QualifiedName | None = None


@dataclass(frozen=True, slots=True)
class LoadGenerator:
    """Rows that are made up. What is None has the default of the generator.

    The fields from `keys` to `envelope` belong to KEY VALUE.
    """

    kind: Literal["COUNTER", "AUCTION", "CLOCK", "TPCH", "KEY VALUE"]
    tick_interval_ms: int | None = None
    as_of_ms: int | None = None
    up_to_ms: int | None = None
    max_cardinality: int | None = None
    seed: int | None = None
    for_all_tables: bool = False
    scale_factor: float | None = None
    keys: int | None = None
    partitions: int | None = None
    snapshot_rounds: int | None = None
    transactional_snapshot: bool | None = None
    value_size: int | None = None
    batch_size: int | None = None
    envelope: Literal["NONE", "UPSERT"] | None = None
    for_tables: tuple[ReferencedTable, ...] = ()


@dataclass(frozen=True, slots=True)
class FilesSource:
    """Files below a path. `pattern` is a glob over names; None in CSV options: the default.

    `null_text` is what stands for NULL in CSV beside the empty field.
    """

    path: str
    format: Literal["CSV", "JSON", "PARQUET"]
    header: bool | None = None
    delimiter: str | None = None
    pattern: str | None = None
    null_text: str | None = None
    on_error: Literal["STALL", "SKIP", "PROPAGATE"] = "STALL"


WebhookFormat = Literal["TEXT", "JSON", "JSON ARRAY", "BYTES"]


@dataclass(frozen=True, slots=True)
class HeaderColumn:
    """INCLUDE HEADER: a column for one header, whose name is in lower case."""

    header: str
    column: str
    is_bytes: bool = False


@dataclass(frozen=True, slots=True)
class HeaderRule:
    """A header that INCLUDE HEADERS lets in, or keeps out; its name is in lower case."""

    header: str
    is_blocked: bool = False


@dataclass(frozen=True, slots=True)
class CheckInput:
    """An input of the condition of CHECK. `secret` is the name of one, else None."""

    kind: Literal["BODY", "HEADERS", "SECRET"]
    secret: QualifiedName | None = None
    alias: str | None = None
    is_bytes: bool = False

    @property
    def name(self) -> str:
        """Its name in the condition."""
        own = self.kind.lower() if self.secret is None else self.secret.last
        return self.alias or own


@dataclass(frozen=True, slots=True)
class WebhookCheck:
    """`condition` is an SQL expression over the names of `inputs`."""

    inputs: tuple[CheckInput, ...]
    condition: TextSlice


@dataclass(frozen=True, slots=True)
class WebhookSource:
    """Requests over HTTP. `rules` None: there is no column with all headers."""

    format: WebhookFormat
    columns: tuple[HeaderColumn, ...] = ()
    rules: tuple[HeaderRule, ...] | None = None
    check: WebhookCheck | None = None


@dataclass(frozen=True, slots=True)
class ChangefeedTable:
    """A table of a feed. `columns` is text for Spark's parser, `extras` the column for others."""

    name: str
    columns: TextSlice
    key: tuple[str, ...]
    extras: str | None = None


@dataclass(frozen=True, slots=True)
class ChangefeedSource:
    """CockroachDB's changefeeds. `path` None: they come over HTTP; `feeds` are in lower case."""

    tables: tuple[ChangefeedTable, ...]
    feeds: tuple[str, ...] = ()
    lookahead: int | None = None
    on_late: Literal["DROP", "FAIL"] = "DROP"
    path: str | None = None


@dataclass(frozen=True, slots=True)
class CreateSecret:
    """Its value is in no text: not in its representation, and not in its canonical form."""

    name: QualifiedName
    value: bytes = field(repr=False, compare=False)
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterSecret:
    """ALTER SECRET ... AS: another value from now on."""

    name: QualifiedName
    value: bytes = field(repr=False, compare=False)
    if_exists: bool = False


Connector = (
    LoadGenerator
    | FilesSource
    | WebhookSource
    | ChangefeedSource
    | KafkaSource
    | PostgresSource
    | DeltaSource
    | IcebergSource
)


@dataclass(frozen=True, slots=True)
class CreateSource:
    """`columns` is the text between the parentheses of the declaration, for Spark's parser."""

    name: QualifiedName
    connector: Connector
    columns: TextSlice | None = None
    if_not_exists: bool = False
    cluster: str | None = None
    expose_progress: QualifiedName | None = None
    timestamp_interval_ms: int | None = None
    retain_history_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FilesSinkConnector:
    path: str
    format: Literal["PARQUET", "JSON"]


@dataclass(frozen=True, slots=True)
class Envelope:
    """The form in which updates become rows. `key` is empty where the envelope has none.

    DIFF belongs to sinks; SUBSCRIBE without an envelope has None.
    """

    kind: Literal["DIFF", "UPSERT", "DEBEZIUM"]
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateSink:
    name: QualifiedName | None
    from_name: QualifiedName
    connector: FilesSinkConnector | KafkaSinkConnector | LakeSinkConnector
    envelope: Envelope = Envelope("DIFF")
    if_not_exists: bool = False
    cluster: str | None = None
    snapshot: bool = True


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """`name` None: one is made of the relation and its keys. `keys` None: all columns."""

    name: QualifiedName | None
    on: QualifiedName
    keys: tuple[TextSlice, ...] | None
    if_not_exists: bool = False
    cluster: str | None = None
    retain_history_ms: int | None = None
    under: DefinedUnder = SESSION


@dataclass(frozen=True, slots=True)
class DropObjects:
    """`cascade` None: neither CASCADE nor RESTRICT was written; RESTRICT is the default."""

    kind: ObjectKind
    names: tuple[QualifiedName, ...]
    if_exists: bool = False
    cascade: bool | None = None


@dataclass(frozen=True, slots=True)
class Show:
    kind: ShowKind
    from_schema: QualifiedName | None = None
    like: str | None = None
    cluster: str | None = None
    on: QualifiedName | None = None


@dataclass(frozen=True, slots=True)
class ShowCreate:
    kind: ObjectKind
    name: QualifiedName


@dataclass(frozen=True, slots=True)
class ShowVariable:
    """`name` is lower case, without the prefix ``slackwater.``."""

    name: str


@dataclass(frozen=True, slots=True)
class ShowAll:
    pass


@dataclass(frozen=True, slots=True)
class Subscribe:
    """`envelope` None: one row for each update, with ``mz_diff``."""

    target: QualifiedName | TextSlice
    snapshot: bool = True
    progress: bool = False
    as_of: AsOf | None = None
    up_to: TextSlice | None = None
    envelope: Envelope | None = None
    within_timestamp_order_by: TextSlice | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """A query with the time at which it is read."""

    text: TextSlice
    as_of: AsOf | None = None


@dataclass(frozen=True, slots=True)
class DeclareCursor:
    name: str
    statement: Subscribe | Query


@dataclass(frozen=True, slots=True)
class Fetch:
    """`count` None: ALL. `timeout_ms` None: wait as FETCH does by default."""

    cursor: str
    count: int | None = 1
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CloseCursor:
    name: str


@dataclass(frozen=True, slots=True)
class ExplainTimestamp:
    query: Query
    format: Literal["TEXT", "JSON"] = "TEXT"


@dataclass(frozen=True, slots=True)
class ExplainIncremental:
    """`target`: a query, or the name of a materialized view."""

    target: TextSlice | QualifiedName


@dataclass(frozen=True, slots=True)
class ExplainAnalyze:
    """A question for the last tick of the materialized view `name`."""

    name: QualifiedName


@dataclass(frozen=True, slots=True)
class Maintained:
    """A materialized view or an index by its name."""

    kind: ObjectKind
    name: QualifiedName


@dataclass(frozen=True, slots=True)
class ExplainPlan:
    """A question for the plan by which a query is maintained, as it would be or as it is."""

    stage: Literal["OPTIMIZED", "PHYSICAL"]
    target: TextSlice | Maintained
    format: Literal["TEXT", "JSON"] = "TEXT"


@dataclass(frozen=True, slots=True)
class Begin:
    """`isolation` is lower case; None and `read_only` None: not said."""

    isolation: str | None = None
    read_only: bool | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    pass


@dataclass(frozen=True, slots=True)
class Rollback:
    pass


@dataclass(frozen=True, slots=True)
class SetVariable:
    """`value` None: DEFAULT. `local`: until the end of the transaction."""

    name: str
    value: str | None
    local: bool = False


@dataclass(frozen=True, slots=True)
class ResetVariable:
    name: str


@dataclass(frozen=True, slots=True)
class AlterSystem:
    """`name` None: RESET of all parameters. `value` None: the default of the one that is named."""

    name: str | None
    value: str | None


@dataclass(frozen=True, slots=True)
class AlterRename:
    kind: ObjectKind
    name: QualifiedName
    new_name: QualifiedName
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class SwapSchemas:
    """ALTER SCHEMA ... SWAP WITH: each gets the name of the other."""

    name: QualifiedName
    other: QualifiedName


@dataclass(frozen=True, slots=True)
class AlterSetRetainHistory:
    """`retain_history_ms` None: RESET, back to the default."""

    kind: ObjectKind
    name: QualifiedName
    retain_history_ms: int | None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterSinkFrom:
    """ALTER SINK ... SET FROM: the sink goes on with the changes of another relation."""

    name: QualifiedName
    from_name: QualifiedName
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterApplyReplacement:
    """ALTER MATERIALIZED VIEW ... APPLY REPLACEMENT."""

    name: QualifiedName
    replacement: QualifiedName
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterSourceAddTable:
    """ALTER SOURCE ... ADD TABLE: a source of changefeeds takes one more table."""

    name: QualifiedName
    table: ChangefeedTable
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ReplayDeadLetters:
    """ALTER SOURCE ... REPLAY DEAD LETTERS: what no table took is tried again."""

    name: QualifiedName
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CommentOn:
    """`text` None: the comment goes away."""

    kind: ObjectKind
    name: QualifiedName
    text: str | None


@dataclass(frozen=True, slots=True)
class AlterSetCluster:
    """ALTER ... SET CLUSTER: the object goes on on another cluster."""

    kind: ObjectKind
    name: QualifiedName
    cluster: str
    if_exists: bool = False


Statement = (
    CreateTable
    | CreateTableFromSource
    | CreateView
    | CreateViewUnder
    | CreateMaterializedView
    | CreateIndex
    | CreateSource
    | CreateSink
    | CreateSecret
    | AlterSecret
    | DropObjects
    | Show
    | ShowCreate
    | ShowVariable
    | ShowAll
    | Subscribe
    | DeclareCursor
    | Fetch
    | CloseCursor
    | ExplainTimestamp
    | ExplainIncremental
    | ExplainAnalyze
    | ExplainPlan
    | Begin
    | Commit
    | Rollback
    | SetVariable
    | ResetVariable
    | AlterSystem
    | AlterRename
    | SwapSchemas
    | AlterSetRetainHistory
    | AlterSinkFrom
    | AlterApplyReplacement
    | AlterSourceAddTable
    | ReplayDeadLetters
    | SkipLost
    | ResnapshotSource
    | RefreshReferences
    | RefreshSchema
    | CommentOn
    | ClusterStatement
    | ShowCreateCluster
    | AlterSetCluster
    | ConnectionStatement
)

_SPARK_DROPS = frozenset({ObjectKind.TABLE, ObjectKind.VIEW, ObjectKind.SCHEMA})


def is_spark_grammar(statement: Statement) -> bool:
    """Whether Spark's own parser takes the statement too.

    Then it is Spark's whenever its target is in another catalog or a temporary view, where
    SLACKWATER_WRONG_CATALOG would take away what users have.
    """
    match statement:
        case CreateView():
            return True
        case DropObjects(kind=kind, names=names, cascade=cascade):
            if kind is ObjectKind.SCHEMA:
                return len(names) == 1
            return kind in _SPARK_DROPS and len(names) == 1 and cascade is None
        case Show(kind=ShowKind.VIEWS, cluster=None, on=None):
            return True
        case ShowCreate(kind=ObjectKind.TABLE):
            return True
        case AlterRename(kind=ObjectKind.TABLE | ObjectKind.VIEW, if_exists=False):
            return True
        case _:
            return False
