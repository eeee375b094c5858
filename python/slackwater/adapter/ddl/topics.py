"""ALTER SOURCE ... SKIP LOST, RESNAPSHOT and REFRESH SCHEMA."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from sqlalchemy import Connection

from slackwater.adapter.catalog.details import (
    Details,
    KafkaDetails,
    KafkaSettings,
    LakeDetails,
    MessageSchema,
    MessageSettings,
    PostgresDetails,
    SourceTableDetails,
    SubsourceDetails,
)
from slackwater.adapter.catalog.lock import LOOK_S
from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.catalog.ops import AlterItem, CatalogOp
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.columns import refuse_refreshed_columns
from slackwater.adapter.ddl.planned_schemas import SchemaPlanner
from slackwater.adapter.ddl.published_columns import PublishedColumns
from slackwater.adapter.sessions.sessions import Execution
from slackwater.adapter.sources.kafka import KafkaSources
from slackwater.adapter.sources.lakes import LakeSources
from slackwater.adapter.sources.message_schemas import reader_schemas
from slackwater.adapter.sources.postgres import PostgresSources
from slackwater.persist.evolution import incompatibility
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.kafka_source import (
    Decoding,
    KafkaSource,
    RefreshSchema,
    Registry,
    ResnapshotSource,
    SkipLost,
    Strategy,
)
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.parse import parse
from slackwater.planner.parser.source_tables import CreateTableFromSource
from slackwater.repr.errors import SlackwaterError, unsupported, user_error
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.storage.ingestion import IngestionRunner, Resnapshot
from slackwater.storage.kafka.columns import source_columns
from slackwater.storage.kafka.ingestion import KafkaIngestion
from slackwater.storage.lake.ingestion import LakeIngestion
from slackwater.storage.lake.source_columns import source_columns as lake_columns
from slackwater.storage.lake.source_columns import widened

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TopicDefinitions:
    """Changes of the sources that read topics."""

    changes: Changes
    kafka: KafkaSources
    postgres: PostgresSources
    lakes: LakeSources
    ingestion: IngestionRunner
    schemas: SchemaPlanner
    published: PublishedColumns

    def skip_lost(self, execution: Execution, statement: SkipLost) -> None:
        """Lets a source go on that has stopped because messages are gone.

        Raises SLACKWATER_WRONG_KIND, SLACKWATER_NOTHING_LOST.
        """
        found = self._source(execution, statement)
        if found is None:
            return
        source, running = found
        if running is None or running.skip_lost() is None:
            raise user_error("SLACKWATER_NOTHING_LOST", objectName=source.full_name)
        self.ingestion.wake(source.id)

    def resnapshot(self, execution: Execution, statement: ResnapshotSource) -> None:
        """Lets a source read its upstream again; returns when the difference is durable.

        Tables of a topic that have keys are read again beside what they have meanwhile.

        Raises SLACKWATER_WRONG_KIND, SLACKWATER_UNSUPPORTED, SLACKWATER_STATEMENT_TIMEOUT.
        """
        source = self._named(execution, statement)
        if source is None:
            return
        match source.details:
            case PostgresDetails():
                self._publication_again(execution, source, statement.tables)
            case LakeDetails():
                if statement.tables:
                    raise _of_one_table("RESNAPSHOT")
                self._again(execution, source, self.lakes.running, LakeIngestion.resnapshot)
            case KafkaDetails(config=KafkaSettings(decoding=None)):
                tables = self._keyed_tables(execution, source, statement.tables)
                self._tables_again(execution, source, tables)
            case KafkaDetails(config=KafkaSettings(decoding=Decoding(envelope="NONE"))):
                raise _without_keys("RESNAPSHOT of a source with ENVELOPE NONE", "a source")
            case KafkaDetails():
                if statement.tables:
                    raise unsupported(
                        "RESNAPSHOT TABLES of a source that reads a topic with FORMAT",
                        advice="Without TABLES it reads its one relation again.",
                    )
                self._again(execution, source, self.kafka.running, KafkaIngestion.resnapshot)
            case _:
                raise _no_topic(source)

    def refresh_schema(self, execution: Execution, statement: RefreshSchema) -> None:
        """Lets a source, or tables of it, have the columns that there are upstream by now.

        Raises SLACKWATER_WRONG_KIND, SLACKWATER_UNSUPPORTED, SLACKWATER_COLUMN_MISMATCH,
        SLACKWATER_DEPENDENT_OBJECTS, what `SchemaPlanner.latest` raises, and what the table of a
        lake raises.
        """
        source = self._named(execution, statement)
        if source is None:
            return
        match source.details:
            case KafkaDetails():
                self._topic_refreshed(execution, source, statement.tables)
            case LakeDetails() if statement.tables:
                raise _of_one_table("REFRESH SCHEMA")
            case LakeDetails():
                self._table_refreshed(execution, source)
            case PostgresDetails():
                self._publication_refreshed(execution, source, statement.tables)
            case _:
                raise _no_topic(source)

    def _table_refreshed(self, execution: Execution, source: CatalogItem) -> None:
        """Lets a source have the columns that the table of a lake has by now, and reads its last
        version again: returns when the difference is durable."""
        details = source.of(LakeDetails)
        with self.lakes.looked_at(
            source.full_name, details.config.place, details.connection
        ) as table:
            now = table.columns(table.newest())
        with self.changes.defining(execution.cancellation):
            item = self.changes.state.item(source.id)
            details = item.of(LakeDetails)
            columns = widened(details.config.columns, now, item.full_name)
            if columns == details.config.columns:
                return
            before = item.stored.desc
            added = lake_columns(columns, item.full_name).columns[len(before.columns) :]
            refuse_refreshed_columns(item, self.changes.state)
            altered = replace(details, config=replace(details.config, columns=columns))
            self.changes.commit(
                self.changes.with_columns(
                    item,
                    RelationDesc((*before.columns, *added)),
                    AlterItem(item.id, details=altered),
                ),
                execution.user,
            )
        self._again(execution, source, self.lakes.running, LakeIngestion.resnapshot)

    def _publication_refreshed(
        self, execution: Execution, source: CatalogItem, names: Sequence[QualifiedName]
    ) -> None:
        """Lets tables of a publication have the columns that they have upstream by now.

        Returns when their rows have the values.
        """
        running = self.postgres.running
        if source.id not in running:
            raise _not_running("REFRESH SCHEMA")
        taken = self.published.take(execution, source, self._exports(execution, source, names))
        self._again(execution, source, running, lambda each: each.resnapshot(taken))

    def _topic_refreshed(
        self, execution: Execution, source: CatalogItem, tables: Sequence[QualifiedName]
    ) -> None:
        """Lets a source, or tables of it, read values in the latest schema of their subject.

        Columns that the schema has more are NULL in the rows that are there. Of several tables all
        change, or none. Returns when nothing is read in the schema before any more.
        """
        topic = source.of(KafkaDetails).config.topic
        latest = {
            each.id: self._latest(topic, each)
            for each in self._refreshable(execution, source, tables)
        }
        with self.changes.defining(execution.cancellation):
            running = self.kafka.running.get(source.id)
            altered = [self._refreshed(item_id, schema) for item_id, schema in latest.items()]
            changed = [each for each in altered if each is not None]
            if not changed:
                return
            self.changes.commit(
                lambda conn: [op for make in changed for op in make(conn)], execution.user
            )
        while running is not None and self.kafka.running.get(source.id) is running:
            self.ingestion.wake(source.id)
            if running.superseded.wait(LOOK_S):
                break
            execution.cancellation.check_deadline(f"{source.full_name} has its new schema")

    def _refreshable(
        self, execution: Execution, source: CatalogItem, names: Sequence[QualifiedName]
    ) -> Sequence[CatalogItem]:
        """The source, those of its tables that are named, or all that read a latest schema.

        Raises SLACKWATER_UNSUPPORTED, and what `_exports` raises.
        """
        if source.of(KafkaDetails).config.messages is not None:
            if names:
                raise unsupported(
                    "REFRESH SCHEMA TABLES of a source that reads a topic with FORMAT",
                    advice="Without TABLES it refreshes the schema of its one relation.",
                )
            return (source,)
        tables = self.changes.state.tables_of(source.id)
        named = self._exports(execution, source, names)
        if named is not None:
            return [table for export, table in tables.items() if export in named]
        found = [each for each in tables.values() if not _is_given(each)]
        if not found:
            raise _without_latest(source)
        return found

    def _latest(self, topic: str, item: CatalogItem) -> MessageSchema:
        """The latest schema of the values of a source, or of a table of one.

        Raises SLACKWATER_UNSUPPORTED, and what `SchemaPlanner.latest` raises.
        """
        messages = _messages(item)
        found = None if _is_given(item) else self.schemas.latest(topic, messages)
        if found is None:
            raise _without_latest(item)
        return found

    def _refreshed(
        self, item_id: GlobalId, schema: MessageSchema
    ) -> Callable[[Connection], Sequence[CatalogOp]] | None:
        """The change by which values are read in that schema; None: they are already."""
        item = self.changes.state.item(item_id)
        messages = replace(_messages(item), value_schema=schema)
        if messages == _messages(item):
            return None
        desc = _refreshed_columns(item, messages)
        if desc != item.desc:
            refuse_refreshed_columns(item, self.changes.state)
        altered = AlterItem(item.id, details=_with_value_schema(item, schema))
        return self.changes.with_columns(item, desc, altered)

    def _publication_again(
        self, execution: Execution, source: CatalogItem, names: Sequence[QualifiedName]
    ) -> None:
        exports = self._exports(execution, source, names)
        running = self.postgres.running
        self._again(execution, source, running, lambda each: each.resnapshot(exports))

    def _tables_again(
        self, execution: Execution, source: CatalogItem, tables: frozenset[str]
    ) -> None:
        running = self.kafka.running
        self._again(execution, source, running, lambda each: each.resnapshot_tables(tables))

    def _again(
        self,
        execution: Execution,
        source: CatalogItem,
        ingestions: Mapping[GlobalId, T],
        ask: Callable[[T], Resnapshot],
    ) -> None:
        """Lets a source read what there is again; returns when the difference is durable.

        `ingestions` are those that run, by their sources; one that is another one is asked anew.
        """
        wanted: Resnapshot | None = None
        asked: T | None = None
        while wanted is None or not wanted.done.wait(LOOK_S):
            running = ingestions.get(source.id)
            if running is None and wanted is None:
                raise _not_running("RESNAPSHOT")
            if running is not None and running is not asked:
                # Another ingestion goes on with the source, which was not asked.
                wanted, asked = ask(running), running
                self.ingestion.wake(source.id)
            execution.cancellation.check_deadline(f"{source.full_name} was read again")

    def _exports(
        self, execution: Execution, source: CatalogItem, names: Sequence[QualifiedName]
    ) -> frozenset[str] | None:
        """The exports of these tables of the source; None: of all.

        Raises SLACKWATER_UNKNOWN_OBJECT, SLACKWATER_WRONG_KIND.
        """
        found = set()
        for name in names:
            table = self.changes.state.get(*execution.context.resolve(name))
            match table.details:
                case SubsourceDetails(parent=source.id, export=export):
                    found.add(export)
                case SourceTableDetails(source=source.id, export=export):
                    found.add(export)
                case _:
                    raise table.wrong_kind(f"table of {source.full_name}")
        return frozenset(found) if names else None

    def _keyed_tables(
        self, execution: Execution, source: CatalogItem, names: Sequence[QualifiedName]
    ) -> frozenset[str]:
        """The exports of these tables of a topic, or of all whose rows have keys.

        Raises SLACKWATER_UNSUPPORTED, and what `_exports` raises.
        """
        tables = self.changes.state.tables_of(source.id)
        keyed = {export for export, each in tables.items() if _has_keys(each)}
        named = self._exports(execution, source, names)
        if named is None and not keyed:
            raise _without_keys("RESNAPSHOT of a source without tables that have keys", "a table")
        for export in sorted((named or keyed) - keyed):
            raise _without_keys(f"RESNAPSHOT of {tables[export].full_name}", "a table")
        return frozenset(named or keyed)

    def _named(
        self, execution: Execution, statement: SkipLost | ResnapshotSource | RefreshSchema
    ) -> CatalogItem | None:
        """The source; None: it need not exist."""
        named = self.changes.existing_name(
            execution, ItemKind.SOURCE, statement.name, if_exists=statement.if_exists
        )
        return None if named is None else self.changes.state.get(*named, ItemKind.SOURCE)

    def _source(
        self, execution: Execution, statement: SkipLost
    ) -> tuple[CatalogItem, KafkaIngestion | None] | None:
        """The source that reads a topic, and its ingestion if it runs; None: it need not exist."""
        source = self._named(execution, statement)
        if source is None:
            return None
        if not isinstance(source.details, KafkaDetails):
            raise _no_topic(source)
        return source, self.kafka.running.get(source.id)


def _no_topic(source: CatalogItem) -> SlackwaterError:
    return user_error(
        "SLACKWATER_WRONG_KIND",
        objectName=source.full_name,
        actualKind="source of another kind",
        expectedKind="source FROM KAFKA",
    )


def _not_running(action: str) -> SlackwaterError:
    return unsupported(
        f"{action} of a source that does not run", advice="Give its cluster a replica first."
    )


def _of_one_table(action: str) -> SlackwaterError:
    return unsupported(
        f"{action} TABLES of a source of one table",
        advice=f"ALTER SOURCE ... {action} is about its table.",
    )


def _has_keys(table: CatalogItem) -> bool:
    messages = table.of(SourceTableDetails).messages
    return messages is not None and messages.decoding.envelope != "NONE"


def _without_keys(what: str, anew: str) -> SlackwaterError:
    return unsupported(
        what,
        advice="With ENVELOPE NONE rows have no keys to tell which of them are there already: "
        f"create {anew} anew.",
    )


def _without_latest(item: CatalogItem) -> SlackwaterError:
    return unsupported(
        f"REFRESH SCHEMA of {item.full_name}",
        advice="It has no values that are read in the latest schema of a registry: create a source "
        "or a table anew.",
    )


def _is_given(item: CatalogItem) -> bool:
    """Whether values of a source, or of a table of one, are not read in a subject's latest schema:
    the statement gives another one, or none."""
    match parse(item.create_sql):
        case st.CreateSource(connector=KafkaSource(decoding=decoding)):
            pass
        case CreateTableFromSource(decoding=decoding):
            pass
        case _:
            raise AssertionError(f"the statement of {item.id} reads no topic")
    schema = None if decoding is None else decoding.value.schema
    return not isinstance(schema, Registry) or schema.value != Strategy()


def _messages(item: CatalogItem) -> MessageSettings:
    """The rules by which messages become rows of a source, or of a table of one."""
    match item.details:
        case KafkaDetails(config=config):
            found = config.messages
        case SourceTableDetails(messages=found):
            pass
        case _:
            found = None
    if found is None:
        raise AssertionError(f"{item.id} reads no messages itself")
    return found


def _with_value_schema(item: CatalogItem, schema: MessageSchema) -> Details:
    """The details of a source, or of a table of one, that reads values in that schema."""
    details = item.details
    if isinstance(details, KafkaDetails):
        return replace(details, config=replace(details.config, value_schema=schema))
    read = replace(_messages(item), value_schema=schema)
    return replace(item.of(SourceTableDetails), messages=read)


def _refreshed_columns(item: CatalogItem, messages: MessageSettings) -> RelationDesc:
    """The columns of the relation with that schema: those that it has, and others behind them.

    Raises SLACKWATER_COLUMN_MISMATCH.
    """
    before = item.stored.desc
    schemas = reader_schemas(messages.key_schema, messages.value_schema)
    after = source_columns(messages.decoding, None, schemas).desc
    reason = incompatibility(before, after)
    count = len(before.columns)
    for was, now in zip(before.columns, after.columns, strict=False):
        if reason is None and was.nullable != now.nullable:
            reason = f"{now.name} can be NULL"
    if reason is not None:
        raise user_error(
            "SLACKWATER_COLUMN_MISMATCH",
            objectName=item.full_name,
            details=f"with the latest schema {reason}",
        )
    return RelationDesc((*before.columns, *after.columns[count:]))
