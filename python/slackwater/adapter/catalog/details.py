"""Details of catalog items: one type for each kind of object, with its form in the metastore.

The metastore has each as a JSON object. Objects of earlier releases lack fields that came later,
which then have their defaults, and may have fields that nobody reads any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cattrs import Converter
from cattrs.gen import make_dict_structure_fn

from slackwater.compute.definitions import PlanVersion
from slackwater.planner.parser.connection_statements import ConnectionKind
from slackwater.planner.parser.kafka_source import Decoding
from slackwater.planner.plan.column_lineage import ColumnLineage
from slackwater.repr.frontier import TIMESTAMP_MIN, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.refresh import RefreshSchedule
from slackwater.repr.relation import RelationDesc
from slackwater.storage.file_formats import Format
from slackwater.storage.files_source import FilesConfig
from slackwater.storage.generators import GeneratorConfig
from slackwater.storage.kafka.sink_messages import KafkaSinkConfig
from slackwater.storage.key_value import KeyValueConfig
from slackwater.storage.lake.config import (
    DeltaPlace,
    IcebergPlace,
    LakePlace,
    LakeSinkConfig,
    LakeSourceConfig,
)
from slackwater.storage.postgres.tables import PostgresTable
from slackwater.storage.sink_files import SinkConfig
from slackwater.storage.webhook import WebhookConfig, column, header_map

RECEIVED = "__received"
"""The column with the time at which a request came: the value of now() in the condition."""


@dataclass(frozen=True, slots=True)
class NoDetails:
    """The details of a system relation, and of an object whose definition is not known yet."""


NO_DETAILS = NoDetails()


@dataclass(frozen=True, slots=True)
class TableDetails:
    """A table. `properties` are the user's."""

    retain_history_ms: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ViewDetails:
    """A stored query; its names mean what they mean in `catalog` and `namespace`.

    `named` are the objects that the query itself names; None in definitions of early releases.
    `properties` are the user's, and those that Spark needs to expand the view.
    """

    query: str
    catalog: str
    namespace: tuple[str, ...]
    named: tuple[GlobalId, ...] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MaterializedViewDetails:
    """A maintained query, as `ViewDetails` have a stored one.

    `settings` are those of Spark's under which it was defined; None: an early release kept none.
    `functions` are those that it calls, `asserting` is the query with the checks of ASSERT NOT
    NULL. `errors` is the shard of the errors in its contents, `as_of` the time at which these
    begin. `refresh` says when it is refreshed; None: with each commit. `replaces` is the view whose
    place it is to take; until then nobody else reads it. `states` are shards of an early release,
    which nobody reads any more. `lineage` says of which columns its own are made; None: the plan
    does not say it, or an early release has made the view.
    """

    query: str
    catalog: str
    namespace: tuple[str, ...]
    settings: Mapping[str, str] | None = None
    functions: tuple[Mapping[str, Any], ...] = ()
    named: tuple[GlobalId, ...] | None = None
    retain_history_ms: int | None = None
    asserting: str | None = None
    maintenance: Literal["incremental", "recompute", "refresh"] | None = None
    program: PlanVersion | None = None
    as_of: Timestamp = TIMESTAMP_MIN
    errors: int | None = None
    refresh: RefreshSchedule | None = None
    replaces: GlobalId | None = None
    states: tuple[int, ...] | None = None
    lineage: ColumnLineage | None = None


@dataclass(frozen=True, slots=True)
class IndexDetails:
    """An index on one relation. `keys` are expressions over the relation's columns.

    `settings` are those of Spark's under which it was defined.
    """

    keys: tuple[str, ...]
    settings: Mapping[str, str] | None = None
    retain_history_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SinkDetails:
    """A sink. The upper of `progress_shard` is the time up to which it has written.

    `connection` is how it gets to its topic or catalog. `version` grows when it goes on with
    another relation.
    """

    config: SinkConfig | KafkaSinkConfig | LakeSinkConfig
    as_of: Timestamp
    progress_shard: int | None = None
    connection: GlobalId | None = None
    version: int = 0

    @property
    def connections(self) -> tuple[GlobalId, ...]:
        """The connection and those beside it, to registries and files, each once."""
        match self.config:
            case KafkaSinkConfig(registries=more):
                return _present(self.connection, *more)
            case LakeSinkConfig(place=place):
                return _present(self.connection, place.aws)
            case SinkConfig():
                return ()

    @property
    def kind(self) -> Literal["files", "kafka", "delta", "iceberg"]:
        """The system that it writes."""
        match self.config:
            case SinkConfig():
                return "files"
            case KafkaSinkConfig():
                return "kafka"
            case LakeSinkConfig(place=DeltaPlace()):
                return "delta"
            case LakeSinkConfig():
                return "iceberg"


def _present(*connections: GlobalId | None) -> tuple[GlobalId, ...]:
    """Those that there are."""
    return tuple(each for each in connections if each is not None)


@dataclass(frozen=True, slots=True)
class SecretDetails:
    """A secret, without its value. `version` grows with each ALTER."""

    version: int = 0


@dataclass(frozen=True, slots=True)
class ConnectionSetting:
    """An option: its texts, of which BROKERS may have several, or the id of its secret, or that of
    another connection."""

    name: str
    texts: tuple[str, ...] = ()
    secret: GlobalId | None = None
    connection: GlobalId | None = None


@dataclass(frozen=True, slots=True)
class ConnectionDetails:
    """A connection, without values of secrets. `version` grows with each ALTER.

    `public_keys` are those of the two pairs of an SSH tunnel, in the form of OpenSSH.
    """

    kind: ConnectionKind
    settings: tuple[ConnectionSetting, ...] = ()
    version: int = 0
    public_keys: tuple[str, ...] = ()

    @property
    def secrets(self) -> tuple[GlobalId, ...]:
        """The ids of its secrets, each once."""
        found = [each.secret for each in self.settings if each.secret is not None]
        return tuple(dict.fromkeys(found))

    @property
    def through(self) -> GlobalId | None:
        """The connection that it needs: to the SSH tunnel that it goes through, or to AWS."""
        return next((e.connection for e in self.settings if e.connection is not None), None)

    @property
    def depends_on(self) -> tuple[GlobalId, ...]:
        """The ids of all that it needs."""
        return (*self.secrets, *(() if self.through is None else (self.through,)))

    def texts(self, name: str) -> tuple[str, ...]:
        """The texts of an option; none: it is a secret, or not there."""
        return next((each.texts for each in self.settings if each.name == name), ())

    def secret(self, name: str) -> GlobalId | None:
        """The secret of an option; None: it is a text, or not there."""
        return next((each.secret for each in self.settings if each.name == name), None)


@dataclass(frozen=True, slots=True)
class FilesDetails:
    """A source of files. `progress` is its progress relation, `errors` the shard of its errors."""

    config: FilesConfig
    interval_ms: int | None = None
    retain_history_ms: int | None = None
    progress: GlobalId | None = None
    exports: Mapping[str, GlobalId] = field(default_factory=dict)
    errors: int | None = None


@dataclass(frozen=True, slots=True)
class GeneratorDetails:
    """A load generator. `exports` are the tables that were made with it, by what it calls them.

    `referenced_ms` is when it was last asked what it has; None: at its creation.
    """

    config: GeneratorConfig | KeyValueConfig
    interval_ms: int | None = None
    retain_history_ms: int | None = None
    progress: GlobalId | None = None
    exports: Mapping[str, GlobalId] = field(default_factory=dict)
    referenced_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CheckedInput:
    """An input of a condition, under the name that the condition has for it.

    `secret` is the id of the secret, if the input is one.
    """

    kind: Literal["BODY", "HEADERS", "SECRET"]
    name: str
    secret: GlobalId | None
    is_bytes: bool


@dataclass(frozen=True, slots=True)
class CheckConfig:
    """The condition of a webhook with the session settings under which it was written."""

    condition: str
    inputs: tuple[CheckedInput, ...]
    settings: Mapping[str, str] | None

    @property
    def secrets(self) -> list[GlobalId]:
        """The ids of its secrets."""
        found = [each.secret for each in self.inputs if each.secret is not None]
        return list(dict.fromkeys(found))

    @property
    def desc(self) -> RelationDesc:
        """The columns of the rows over which the condition is evaluated."""
        columns = []
        for each in self.inputs:
            kind = "binary" if each.is_bytes else "string"
            if each.kind == "HEADERS":
                columns.append(header_map(each.name, kind))
            else:
                columns.append(column(each.name, kind, nullable=False))
        return RelationDesc((*columns, column(RECEIVED, "timestamp", nullable=False)))


@dataclass(frozen=True, slots=True)
class WebhookDetails:
    """A source that takes requests: it has no progress relation."""

    config: WebhookConfig
    retain_history_ms: int | None = None
    check: CheckConfig | None = None


@dataclass(frozen=True, slots=True)
class FeedTableSettings:
    """A table of a source of changefeeds.

    `extras` is the column for the contents that the declaration does not name.
    """

    name: str
    key: tuple[str, ...]
    extras: str | None = None


@dataclass(frozen=True, slots=True)
class ChangefeedSettings:
    """The declaration of a source of changefeeds. `path` None: the source takes requests."""

    format: str
    tables: tuple[FeedTableSettings, ...]
    feeds: tuple[str, ...]
    lookahead: int | None
    on_late: Literal["DROP", "FAIL"]
    path: str | None


@dataclass(frozen=True, slots=True)
class ChangefeedDetails:
    """A source of changefeeds. `landing` and `dead_letters` are the names of two of its exports.

    `seen` are the tables of its dead letters when it was last asked what it has, `referenced_ms` is
    when that was; None: at its creation.
    """

    config: ChangefeedSettings
    landing: str
    dead_letters: str
    interval_ms: int | None = None
    retain_history_ms: int | None = None
    progress: GlobalId | None = None
    exports: Mapping[str, GlobalId] = field(default_factory=dict)
    seen: tuple[str, ...] = ()
    referenced_ms: int | None = None


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """The schema in which keys or values are read, as it was found at the creation.

    `registry` is the connection to the registry that has the schemas in which they are written;
    None: they are written in this one.
    """

    schema: str
    registry: GlobalId | None = None
    has_header: bool = True


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """The message that keys or values are, as it was found at the creation.

    `files` is the descriptor set that has it, in base64. See `AvroSchema`.
    """

    message: str
    files: str
    registry: GlobalId | None = None
    has_header: bool = False


MessageSchema = AvroSchema | ProtobufSchema


@dataclass(frozen=True, slots=True)
class MessageSettings:
    """The rules by which messages become rows.

    `declared` are the columns of values, as JSON, if they were declared. The schemas are there
    where keys and values have one; the formats in `decoding` have none then.
    """

    decoding: Decoding
    declared: str | None = None
    key_schema: MessageSchema | None = None
    value_schema: MessageSchema | None = None

    @property
    def registries(self) -> tuple[GlobalId, ...]:
        """The connections to registries of keys and values."""
        schemas = (self.key_schema, self.value_schema)
        return tuple(each.registry for each in schemas if each is not None and each.registry)


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The declaration of a source that reads a topic, and which topic it was then.

    `decoding` and the fields of `MessageSettings` belong to the source's own rows. `decoding` None:
    it has none, but tables.
    """

    topic: str
    cluster: str
    topic_id: str
    decoding: Decoding | None = None
    declared: str | None = None
    start_offsets: tuple[int, ...] = ()
    group_id_prefix: str = ""
    key_schema: MessageSchema | None = None
    value_schema: MessageSchema | None = None

    @property
    def messages(self) -> MessageSettings | None:
        """The rules by which messages become rows of the source; None: it has tables instead."""
        if self.decoding is None:
            return None
        return MessageSettings(self.decoding, self.declared, self.key_schema, self.value_schema)


@dataclass(frozen=True, slots=True)
class KafkaDetails:
    """A source that reads a topic. `dead_letters` is the name of one of its exports.

    `referenced_ms` is when it was last asked what it has; None: at its creation.
    """

    config: KafkaSettings
    connection: GlobalId
    dead_letters: str | None = None
    interval_ms: int | None = None
    retain_history_ms: int | None = None
    progress: GlobalId | None = None
    exports: Mapping[str, GlobalId] = field(default_factory=dict)
    errors: int | None = None
    referenced_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """The declaration of a source that reads a publication, and which server it was on then.

    `snapshot_connections` None: the default.
    """

    publication: str
    slot: str
    system: str
    timeline: int
    tables: tuple[PostgresTable, ...]
    snapshot_connections: int | None = None


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table of a publication, with the names of its columns."""

    schema: str
    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PostgresDetails:
    """A source that reads tables of PostgreSQL. `exports` are those that were made with it.

    `referenced` are the tables that the publication had when it was last asked; None: an early
    release kept none. `referenced_ms` is when that was; None: at its creation.
    """

    config: PostgresSettings
    connection: GlobalId
    interval_ms: int | None = None
    retain_history_ms: int | None = None
    progress: GlobalId | None = None
    exports: Mapping[str, GlobalId] = field(default_factory=dict)
    referenced: tuple[PublishedTable, ...] | None = None
    referenced_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LakeDetails:
    """A source that reads a table of a lake. `connection` leads to its catalog, if it has one.

    `errors` is the shard of the errors in its contents.
    """

    config: LakeSourceConfig
    connection: GlobalId | None = None
    interval_ms: int | None = None
    retain_history_ms: int | None = None
    progress: GlobalId | None = None
    exports: Mapping[str, GlobalId] = field(default_factory=dict)
    errors: int | None = None

    @property
    def connections(self) -> tuple[GlobalId, ...]:
        """The connection, and the one to the table's files."""
        return _present(self.connection, self.config.place.aws)

    @property
    def kind(self) -> Literal["delta", "iceberg"]:
        """The format of the table."""
        return "delta" if isinstance(self.config.place, DeltaPlace) else "iceberg"


@dataclass(frozen=True, slots=True)
class ProgressDetails:
    """The progress relation of the source `parent`, with which it lives and dies."""

    parent: GlobalId
    retain_history_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SubsourceDetails:
    """The table `export` of the source `parent`, with which it lives and dies.

    `errors` is the shard of the errors in its contents, where it `has_errors`. `source`: the parent
    is a table of that source, whose export this is.
    """

    parent: GlobalId
    export: str
    retain_history_ms: int | None = None
    has_errors: bool = False
    errors: int | None = None
    source: GlobalId | None = None


@dataclass(frozen=True, slots=True)
class SourceTableDetails:
    """A table that the ingestion of `source` fills, as the export of that name.

    `reference` is what the source calls the contents. `messages` say how messages become rows,
    where the source reads such, `upstream` is the table of PostgreSQL that it reads, `feed` how a
    changefeed's changes become rows. `errors` is
    the shard of the errors in the contents, `dead_letters` the relation with its dead letters.
    """

    source: GlobalId
    export: str
    reference: tuple[str, ...]
    retain_history_ms: int | None = None
    messages: MessageSettings | None = None
    errors: int | None = None
    upstream: PostgresTable | None = None
    dead_letters: GlobalId | None = None
    feed: FeedTableSettings | None = None


IngestedDetails = (
    FilesDetails
    | GeneratorDetails
    | ChangefeedDetails
    | KafkaDetails
    | PostgresDetails
    | LakeDetails
)
SourceDetails = IngestedDetails | WebhookDetails
PartDetails = ProgressDetails | SubsourceDetails
Retaining = (
    TableDetails
    | SourceTableDetails
    | MaterializedViewDetails
    | IndexDetails
    | SourceDetails
    | PartDetails
)
Details = NoDetails | ViewDetails | SinkDetails | SecretDetails | ConnectionDetails | Retaining

_CONNECTORS: Mapping[str | None, type[SourceDetails | PartDetails]] = {
    "files": FilesDetails,
    "load-generator": GeneratorDetails,
    "webhook": WebhookDetails,
    "changefeed": ChangefeedDetails,
    "kafka": KafkaDetails,
    "postgres": PostgresDetails,
    "lake": LakeDetails,
    "progress": ProgressDetails,
    None: SubsourceDetails,
}
"""The types of details by the connector in the metastore; a table of a source has none."""

OF_SOURCE = "source"
"""The connector of a table that a source fills; other tables have none."""

CONNECTOR_NAMES: Mapping[type[Any], str | None] = {
    SourceTableDetails: OF_SOURCE,
    **{kind: name for name, kind in _CONNECTORS.items()},
}

_KINDS: Mapping[str, type[Details]] = {
    "table": TableDetails,
    "view": ViewDetails,
    "materialized-view": MaterializedViewDetails,
    "sink": SinkDetails,
    "secret": SecretDetails,
    "connection": ConnectionDetails,
    "index": IndexDetails,
    "system-table": NoDetails,
}


def retaining(details: Details, retain_history_ms: int | None) -> Details:
    """The details of an object that keeps so much history; those without history as they are."""
    if not isinstance(details, Retaining):
        return details
    return replace(details, retain_history_ms=retain_history_ms)


def to_json(details: Details) -> Mapping[str, Any]:
    """The form in the metastore."""
    found: dict[str, Any] = _converter.unstructure(details)
    connector = CONNECTOR_NAMES.get(type(details))
    return found if connector is None else {**found, "connector": connector}


def from_json(kind: str, found: Mapping[str, Any]) -> Details:
    """The details of an object of that kind, as an object of the protocol names it."""
    made: type[Details]
    if kind == "table" and found.get("connector") == OF_SOURCE:
        made = SourceTableDetails
    else:
        made = _CONNECTORS[found.get("connector")] if kind == "source" else _KINDS[kind]
    details: Details = _converter.structure(found, made)
    return details


def _made() -> Converter:
    converter = Converter(detailed_validation=False)
    structure_files = make_dict_structure_fn(Format, converter)
    converter.register_structure_hook(
        FilesConfig,
        lambda found, _: FilesConfig(
            path=found["path"],
            format=structure_files(found, Format),
            pattern=found["pattern"],
            on_error=found["on_error"],
        ),
    )
    converter.register_unstructure_hook(FilesConfig, _files_json)
    converter.register_structure_hook(
        GeneratorConfig | KeyValueConfig,
        lambda found, _: converter.structure(
            found, KeyValueConfig if found["kind"] == KEY_VALUE else GeneratorConfig
        ),
    )
    converter.register_structure_hook(
        SinkConfig | KafkaSinkConfig | LakeSinkConfig,
        lambda found, _: converter.structure(found, _sink_config(found)),
    )
    converter.register_structure_hook(
        LakePlace,
        lambda found, _: converter.structure(found, DeltaPlace if "uri" in found else IcebergPlace),
    )
    keys = converter.get_unstructure_hook(KeyValueConfig)
    converter.register_unstructure_hook(KeyValueConfig, _with_kind(keys))
    return converter


def _sink_config(found: Mapping[str, Any]) -> type[SinkConfig | KafkaSinkConfig | LakeSinkConfig]:
    if "place" in found:
        return LakeSinkConfig
    return KafkaSinkConfig if "topic" in found else SinkConfig


KEY_VALUE = "KEY VALUE"


def _with_kind(
    unstructure: Callable[[KeyValueConfig], Mapping[str, Any]],
) -> Callable[[KeyValueConfig], Mapping[str, Any]]:
    return lambda config: {**unstructure(config), "kind": KEY_VALUE}


def _files_json(config: FilesConfig) -> Mapping[str, Any]:
    return {
        "path": config.path,
        "kind": config.format.kind,
        "header": config.format.header,
        "delimiter": config.format.delimiter,
        "null_text": config.format.null_text,
        "pattern": config.pattern,
        "on_error": config.on_error,
    }


_converter = _made()
