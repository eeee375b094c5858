"""New sources and sinks: from the statement to the items of the catalog."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import (
    ChangefeedDetails,
    ChangefeedSettings,
    CheckConfig,
    CheckedInput,
    FilesDetails,
    GeneratorDetails,
    KafkaDetails,
    SinkDetails,
    SourceDetails,
    SubsourceDetails,
    WebhookDetails,
)
from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.catalog.ops import AlterItem
from slackwater.adapter.catalog.replaced import refuse_replacement
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.planned_columns import DeclaredColumns
from slackwater.adapter.ddl.planned_feeds import feed_columns, feed_settings
from slackwater.adapter.ddl.planned_kafka_sinks import PlannedSink
from slackwater.adapter.ddl.planned_lake_sinks import SinkPlanners
from slackwater.adapter.ddl.planned_lake_sources import SourcePlanners
from slackwater.adapter.ddl.planned_parts import (
    free_letters_name,
    free_name,
    part_of,
    progress_item,
)
from slackwater.adapter.sources.checks import verify
from slackwater.adapter.sources.descriptions import DEFAULT_INTERVAL_MS
from slackwater.adapter.sources.inference import inferred_columns
from slackwater.adapter.sources.references import found_reference
from slackwater.adapter.time.timeline import Timeline
from slackwater.checkpoints.names import canonical
from slackwater.compute.engine import Engine
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.canonical import to_sql
from slackwater.planner.parser.kafka_sink import KafkaSinkConnector
from slackwater.planner.parser.kafka_source import KafkaSource
from slackwater.planner.parser.lake_source import DeltaSource, IcebergSource
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.parse import parse
from slackwater.planner.parser.postgres_source import PostgresSource
from slackwater.repr.errors import invalid_option, unsupported, user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.storage.changefeed.files import FILES_FEED
from slackwater.storage.changefeed.landing import DEAD_LETTERS, LANDING
from slackwater.storage.discovery import local_path
from slackwater.storage.file_formats import Format
from slackwater.storage.files_source import FilesConfig
from slackwater.storage.generators import GeneratorConfig, exports
from slackwater.storage.kafka.envelopes import DEAD_LETTERS as DEAD_LETTERS_OF_TOPICS
from slackwater.storage.kafka.sink_messages import check_kafka_sink, check_numbers
from slackwater.storage.key_value import DESC as KEY_VALUE
from slackwater.storage.key_value import KeyValueConfig
from slackwater.storage.lake.config import LakeSinkConfig
from slackwater.storage.sink_files import SinkConfig, check_config, claim_location
from slackwater.storage.webhook import WebhookConfig

DEFAULT_SCALE_FACTOR = 0.01


class ConnectorPlanner:
    """Plans the catalog items of sources and sinks. None of them exists until it is committed."""

    def __init__(
        self,
        changes: Changes,
        relations: Relations,
        timeline: Timeline,
        engine: Engine,
        sources: SourcePlanners,
        sinks: SinkPlanners,
    ) -> None:
        self._sources = sources
        self._sinks = sinks
        self._changes = changes
        self._relations = relations
        self._timeline = timeline
        self._spark = engine
        self._columns = DeclaredColumns(engine)

    def plan_source(
        self, blank: CatalogItem, context: Context, statement: st.CreateSource
    ) -> tuple[list[CatalogItem], tuple[str, ...]]:
        """The items of the new source `blank` in the order of their creation, and what is to be
        told of it.

        Its progress relation, the source itself, and one for each of its tables; a webhook has the
        source alone. Raises SLACKWATER_SOURCE_FILES_NOT_FOUND and errors of the options.
        """
        tables: list[CatalogItem] = []
        notices: tuple[str, ...] = ()
        match statement.connector:
            case st.WebhookSource() as connector:
                return [self._webhook(blank, context, statement, connector)], ()
            case st.ChangefeedSource() as connector:
                source, tables = self._changefeed(blank, context, statement, connector)
            case st.LoadGenerator() as connector:
                source, tables = self._generator(blank, statement, connector)
            case KafkaSource():
                source, tables = self._topic(blank, context, statement)
            case PostgresSource():
                source, tables, notices = self._publication(blank, context, statement)
            case DeltaSource() | IcebergSource():
                source = self._table_of_lake(blank, context, statement)
            case connector:
                source = self._files(blank, context, statement, connector)
        progress = self._progress(source, context, statement)
        exports = {table.of(SubsourceDetails).export: table.id for table in tables}
        details = replace(source.ingested, progress=progress.id, exports=exports)
        depends_on = (progress.id, *source.depends_on)
        made = replace(source, depends_on=depends_on, details=details)
        return [progress, made, *tables], notices

    def _progress(
        self, source: CatalogItem, context: Context, statement: st.CreateSource
    ) -> CatalogItem:
        given = statement.expose_progress
        schema, name = (
            (
                source.schema_name,
                free_name(self._relations.state, source.schema_name, f"{source.name}_progress"),
            )
            if given is None
            else context.resolve(given)
        )
        return progress_item(self._changes.new_id(), source, schema, name)

    def plan_sink(
        self,
        blank: CatalogItem,
        context: Context,
        statement: st.CreateSink,
        written: CatalogItem,
    ) -> tuple[CatalogItem, tuple[str, ...]]:
        """The new sink `blank` over `written`, which is held while this chooses the as-of, and what
        is to be told of it.

        Raises SLACKWATER_WRONG_KIND, SLACKWATER_SINK_KEY, SLACKWATER_SINK_LOCATION_IN_USE,
        SLACKWATER_SINK_LOCATION_UNWRITABLE, and what the planners of other sinks raise.
        """
        desc = _stored_columns(written)
        match statement.connector:
            case KafkaSinkConnector():
                planned = self._sinks.kafka.plan(blank, context, statement, written)
            case st.FilesSinkConnector() as files:
                planned = self._files_sink(blank, statement, files, desc)
            case _:
                planned = self._sinks.lakes.plan(blank, context, statement, desc)
        item = replace(
            blank,
            create_sql=to_sql(_named_sink(planned.statement, blank, written)),
            depends_on=(written.id, *planned.details.connections),
            details=replace(planned.details, as_of=self._timeline.read_ts()),
        )
        return item, planned.notices

    def _files_sink(
        self,
        blank: CatalogItem,
        statement: st.CreateSink,
        connector: st.FilesSinkConnector,
        desc: RelationDesc,
    ) -> PlannedSink:
        config = SinkConfig(
            path=local_path(connector.path, os.getcwd),
            format=connector.format,
            envelope=statement.envelope.kind,
            key=statement.envelope.key,
            snapshot=statement.snapshot,
        )
        check_config(config, desc, blank.full_name)
        claim_location(config, blank.id)
        return PlannedSink(statement, SinkDetails(config, Timestamp(0)))

    def redirect_sink(self, sink: CatalogItem, written: CatalogItem) -> AlterItem:
        """The change by which a sink goes on with another relation.

        Raises SLACKWATER_WRONG_KIND, SLACKWATER_SINK_KEY, and SLACKWATER_COLUMN_MISMATCH when a
        column that both relations have changes its type.
        """
        desc, details = _stored_columns(written), sink.of(SinkDetails)
        known_desc = _stored_columns(self._relations.item(sink.depends_on[0]))
        match details.config:
            case SinkConfig() as config:
                check_config(config, desc, sink.full_name)
            case LakeSinkConfig() as table:
                self._sinks.lakes.check(sink, table, desc)
            case topic:
                check_kafka_sink(topic, desc, sink.full_name)
                check_numbers(topic, known_desc, desc, sink.full_name)
        before = {column.name: column for column in known_desc.columns}
        for column in desc.columns:
            known = before.get(column.name)
            if known is not None and known.type_json != column.type_json:
                raise user_error(
                    "SLACKWATER_COLUMN_MISMATCH",
                    objectName=sink.full_name,
                    details=f"{column.name} is {column.sql_type} in {written.full_name}, and "
                    f"{known.sql_type} in what is out",
                )
        statement = parse(sink.create_sql)
        if not isinstance(statement, st.CreateSink):
            raise AssertionError(f"the statement of {sink.id} is no CREATE SINK")
        redirected = replace(statement, from_name=_full(written.schema_name, written.name))
        return AlterItem(
            sink.id,
            create_sql=to_sql(redirected),
            depends_on=(written.id, *sink.depends_on[1:]),
            details=replace(details, version=details.version + 1),
        )

    def _generator(
        self,
        blank: CatalogItem,
        statement: st.CreateSource,
        connector: st.LoadGenerator,
    ) -> tuple[CatalogItem, list[CatalogItem]]:
        """The source and its tables."""
        if connector.as_of_ms is not None:
            raise unsupported(
                "The option AS OF of a load generator",
                advice="Leave it out: the generator begins when it is created.",
            )
        if connector.kind == "KEY VALUE":
            return self._key_value(blank, statement, connector), []
        config = GeneratorConfig(
            kind=connector.kind,
            tick_interval_ms=_interval_ms(connector),
            seed=connector.seed or 0,
            up_to=connector.up_to_ms,
            max_cardinality=connector.max_cardinality,
            scale_factor=connector.scale_factor or DEFAULT_SCALE_FACTOR,
        )
        tables = exports(connector.kind)
        single = len(tables) == 1
        own_desc = next(iter(tables.values())) if single else None
        details = _generator_details(statement, config, config.tick_interval_ms)
        source = _defined(blank, statement, own_desc, details)
        if single:
            return source, []
        return source, [
            replace(
                self._child(source, export, tables[export], statement.retain_history_ms), name=name
            )
            for export, name in _chosen(connector, tables).items()
        ]

    def _key_value(
        self, blank: CatalogItem, statement: st.CreateSource, connector: st.LoadGenerator
    ) -> CatalogItem:
        config = KeyValueConfig(
            keys=connector.keys or 1,
            partitions=connector.partitions or 1,
            snapshot_rounds=connector.snapshot_rounds or 1,
            value_size=connector.value_size or 1,
            batch_size=connector.batch_size or 1,
            seed=connector.seed or 0,
            transactional_snapshot=connector.transactional_snapshot is not False,
            tick_interval_ms=connector.tick_interval_ms,
            envelope=connector.envelope or "UPSERT",
        )
        # The rounds of a snapshot do not wait for ticks.
        poll_ms = min(connector.tick_interval_ms or DEFAULT_INTERVAL_MS, DEFAULT_INTERVAL_MS)
        details = _generator_details(statement, config, poll_ms)
        return _defined(blank, statement, KEY_VALUE, details)

    def _child(
        self,
        source: CatalogItem,
        export: str,
        desc: RelationDesc,
        retain_ms: int | None,
        *,
        has_errors: bool = False,
    ) -> CatalogItem:
        details = SubsourceDetails(source.id, export, retain_ms, has_errors)
        return part_of(source, self._changes.new_id(), export, desc, details)

    def _files(
        self,
        blank: CatalogItem,
        context: Context,
        statement: st.CreateSource,
        connector: st.FilesSource,
    ) -> CatalogItem:
        config = FilesConfig(
            path=local_path(connector.path, os.getcwd),
            format=Format(
                kind=connector.format,
                header=bool(connector.header),
                delimiter=connector.delimiter or ",",
                null_text=connector.null_text or "",
            ),
            pattern=connector.pattern,
            on_error=connector.on_error,
        )
        if statement.columns is None:
            desc = inferred_columns(self._columns.engine(context), config, blank.full_name)
        else:
            desc = self._columns.declared(statement.columns.text, context)
        desc.arrow_schema()
        details = FilesDetails(
            config,
            interval_ms=statement.timestamp_interval_ms or DEFAULT_INTERVAL_MS,
            retain_history_ms=statement.retain_history_ms,
        )
        return _defined(blank, statement, desc, details)

    def _topic(
        self, blank: CatalogItem, context: Context, statement: st.CreateSource
    ) -> tuple[CatalogItem, list[CatalogItem]]:
        """The source, and its dead letters if it has any."""
        given = statement.columns
        declared = None if given is None else self._columns.declared(given.text, context)
        planned = self._sources.kafka.plan(blank, context, statement, declared)
        details, letters = planned.details, None
        messages = details.config.messages
        if messages is not None and messages.decoding.on_error == "DEAD LETTER":
            letters = free_letters_name(self._relations.state, blank)
            details = replace(details, dead_letters=letters)
        source = _defined(blank, planned.statement, planned.desc, details)
        source = replace(source, depends_on=_used(details))
        if letters is None:
            return source, []
        return source, [self._child(source, letters, DEAD_LETTERS_OF_TOPICS, None)]

    def _publication(
        self, blank: CatalogItem, context: Context, statement: st.CreateSource
    ) -> tuple[CatalogItem, list[CatalogItem], tuple[str, ...]]:
        """The source and its tables, and what is to be told of them."""
        planned = self._sources.postgres.plan(blank, context, statement)
        source = _defined(blank, planned.statement, None, planned.details)
        source = replace(source, depends_on=(planned.details.connection,))
        retain_ms = statement.retain_history_ms
        tables = [
            self._child(source, table.export, desc, retain_ms, has_errors=True)
            for table, desc in planned.tables
        ]
        return source, tables, planned.notices

    def _table_of_lake(
        self, blank: CatalogItem, context: Context, statement: st.CreateSource
    ) -> CatalogItem:
        planned = self._sources.lakes.plan(blank, context, statement)
        source = _defined(blank, planned.statement, planned.desc, planned.details)
        return replace(source, depends_on=planned.details.connections)

    def _webhook(
        self,
        blank: CatalogItem,
        context: Context,
        statement: st.CreateSource,
        connector: st.WebhookSource,
    ) -> CatalogItem:
        """The source. Raises SLACKWATER_UNKNOWN_OBJECT for a secret, and the condition's errors."""
        config = WebhookConfig.of(connector)
        details = WebhookDetails(config, statement.retain_history_ms)
        secrets: list[GlobalId] = []
        if connector.check is not None:
            check = self._check(context, connector.check)
            verify(self._spark, check)
            secrets = check.secrets
            details = replace(details, check=check)
        named = replace(statement, connector=self._named_secrets(context, connector))
        item = _defined(blank, named, config.desc, details)
        return replace(item, depends_on=tuple(secrets))

    def _changefeed(
        self,
        blank: CatalogItem,
        context: Context,
        statement: st.CreateSource,
        connector: st.ChangefeedSource,
    ) -> tuple[CatalogItem, list[CatalogItem]]:
        """The source, its tables, its landing, and its dead letters.

        Raises SLACKWATER_INVALID_OPTION, and errors of the columns.
        """
        tables = {
            each.name: feed_columns(each, self._columns.declared(each.columns.text, context))
            for each in connector.tables
        }
        taken = {each.casefold() for each in (blank.name, *tables)}
        landing, dead_letters = (
            free_name(self._relations.state, blank.schema_name, f"{blank.name}_{what}", taken)
            for what in ("landing", "dead_letters")
        )
        path = None if connector.path is None else local_path(connector.path, os.getcwd)
        for feed in connector.feeds:
            _check_feed(feed)
        details = ChangefeedDetails(
            ChangefeedSettings(
                format="cockroach",
                tables=tuple(feed_settings(each) for each in connector.tables),
                feeds=connector.feeds or (() if path is None else (FILES_FEED,)),
                lookahead=connector.lookahead,
                on_late=connector.on_late,
                path=path,
            ),
            landing,
            dead_letters,
            interval_ms=statement.timestamp_interval_ms or DEFAULT_INTERVAL_MS,
            retain_history_ms=statement.retain_history_ms,
        )
        source = _defined(blank, statement, None, details)
        return source, [
            *(
                self._child(source, export, desc, statement.retain_history_ms)
                for export, desc in tables.items()
            ),
            self._child(source, landing, LANDING, None),
            self._child(source, dead_letters, DEAD_LETTERS, None),
        ]

    def _check(self, context: Context, check: st.WebhookCheck) -> CheckConfig:
        inputs = []
        for each in check.inputs:
            secret = None if each.secret is None else self._secret(context, each.secret).id
            inputs.append(CheckedInput(each.kind, each.name, secret, each.is_bytes))
        settings = None if context.settings is None else dict(context.settings)
        return CheckConfig(check.condition.text, tuple(inputs), settings)

    def _secret(self, context: Context, name: QualifiedName) -> CatalogItem:
        schema, own = context.resolve(name)
        return self._relations.state.get(schema, own, ItemKind.SECRET)

    def _named_secrets(self, context: Context, connector: st.WebhookSource) -> st.WebhookSource:
        """The connector with the full names of its secrets, which mean the same everywhere."""
        if connector.check is None:
            return connector
        inputs = []
        for each in connector.check.inputs:
            if each.secret is not None:
                item = self._secret(context, each.secret)
                full = _full(item.schema_name, item.name)
                each = replace(each, secret=full, alias=each.alias or each.secret.last)
            inputs.append(each)
        return replace(connector, check=replace(connector.check, inputs=tuple(inputs)))


def _used(details: KafkaDetails) -> tuple[GlobalId, ...]:
    """The connections that a source needs, each once."""
    messages = details.config.messages
    registries = () if messages is None else messages.registries
    return tuple(dict.fromkeys((details.connection, *registries)))


def _chosen(connector: st.LoadGenerator, tables: Mapping[str, RelationDesc]) -> dict[str, str]:
    """The tables that are made with the source, by what it calls them.

    Raises SLACKWATER_UNKNOWN_REFERENCE, and SLACKWATER_INVALID_OPTION for one that is named twice.
    """
    if connector.for_all_tables:
        return {name: name for name in tables}
    known = [(connector.kind.lower(), name) for name in tables]
    found: dict[str, str] = {}
    for each in connector.for_tables:
        *_, reference = found_reference(connector.kind, known, each.reference)
        if reference in found:
            reason = "it is there twice; CREATE TABLE ... FROM SOURCE makes another table of it"
            raise invalid_option("FOR TABLES", "CREATE SOURCE", reference, reason)
        found[reference] = each.name or reference
    return found


def _defined(
    blank: CatalogItem,
    statement: st.CreateSource,
    desc: RelationDesc | None,
    details: SourceDetails,
) -> CatalogItem:
    """The new source with its columns and its definition."""
    sql = to_sql(_named_source(statement, blank.schema_name, blank.name))
    return replace(blank, create_sql=sql, desc=desc, details=details)


def _stored_columns(written: CatalogItem) -> RelationDesc:
    """The columns of a relation that a sink can write. Raises SLACKWATER_WRONG_KIND."""
    if written.shard_id is None or written.desc is None:
        raise written.wrong_kind("table, source or materialized view")
    refuse_replacement(written)
    return written.desc


def _check_feed(feed: str) -> None:
    try:
        canonical(feed)
    except ValueError:
        raise invalid_option(
            "FEEDS", "CREATE SOURCE", feed[:50], "it is no name of a feed"
        ) from None


def _interval_ms(connector: st.LoadGenerator) -> int | None:
    """The interval of a generator; None: TPCH does not change unless it has a TICK INTERVAL."""
    still = connector.kind == "TPCH" and connector.tick_interval_ms is None
    return None if still else connector.tick_interval_ms or DEFAULT_INTERVAL_MS


def _generator_details(
    statement: st.CreateSource,
    config: GeneratorConfig | KeyValueConfig,
    interval_ms: int | None,
) -> GeneratorDetails:
    if statement.timestamp_interval_ms is not None:
        raise unsupported(
            "TIMESTAMP INTERVAL of a load generator",
            advice="TICK INTERVAL says how often it makes rows.",
        )
    return GeneratorDetails(config, interval_ms or DEFAULT_INTERVAL_MS, statement.retain_history_ms)


def _full(schema: str, name: str) -> QualifiedName:
    return QualifiedName(("slackwater", schema, name))


def _named_source(statement: st.CreateSource, schema: str, name: str) -> st.CreateSource:
    return replace(statement, name=_full(schema, name), if_not_exists=False)


def _named_sink(statement: st.CreateSink, sink: CatalogItem, written: CatalogItem) -> st.CreateSink:
    return replace(
        statement,
        name=_full(sink.schema_name, sink.name),
        from_name=_full(written.schema_name, written.name),
        if_not_exists=False,
    )
