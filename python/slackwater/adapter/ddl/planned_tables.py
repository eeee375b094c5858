"""Tables that sources fill: from the statement to the item of the catalog.

Source: docs/decisions 0073.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import (
    ChangefeedDetails,
    GeneratorDetails,
    KafkaDetails,
    PostgresDetails,
    SourceTableDetails,
    SubsourceDetails,
)
from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.adapter.catalog.render import name_of
from slackwater.adapter.ddl.planned_columns import DeclaredColumns
from slackwater.adapter.ddl.planned_feeds import feed_columns, feed_settings
from slackwater.adapter.ddl.planned_kafka import KafkaPlanner
from slackwater.adapter.ddl.planned_parts import free_letters_name, part_of
from slackwater.adapter.ddl.planned_postgres import PostgresPlanner
from slackwater.adapter.sources.feed_tables import fed_tables
from slackwater.adapter.sources.references import found_reference, references
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.canonical import to_sql
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.source_tables import CreateTableFromSource
from slackwater.repr.errors import SlackwaterError, invalid_option, unsupported, user_error
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.storage.kafka.envelopes import DEAD_LETTERS

_WITHOUT_MESSAGES = (ChangefeedDetails, GeneratorDetails, PostgresDetails)
"""The details of sources with tables whose rows are no messages."""


@dataclass(frozen=True, slots=True)
class SourceTablePlanner:
    """Plans the catalog items of tables that sources fill."""

    state: Callable[[], CatalogState]
    kafka: KafkaPlanner
    postgres: PostgresPlanner
    columns: DeclaredColumns

    def plan(
        self,
        blank: CatalogItem,
        context: Context,
        statement: CreateTableFromSource,
        source: CatalogItem,
    ) -> tuple[CatalogItem, tuple[str, ...]]:
        """The item of the new table `blank`, without its shard, and what is to be told of it.

        Raises SLACKWATER_UNKNOWN_REFERENCE, SLACKWATER_UNSUPPORTED, SLACKWATER_SYNTAX_ERROR,
        SLACKWATER_INVALID_OPTION, and what `KafkaPlanner.messages` and `PostgresPlanner.table`
        raise.
        """
        is_of_changefeed = isinstance(source.details, ChangefeedDetails)
        if statement.key and not is_of_changefeed:
            raise unsupported(
                f"KEY of a table of {source.full_name}",
                advice="Leave it out: it is for tables of changefeeds.",
            )
        if statement.decoding is not None and isinstance(source.details, _WITHOUT_MESSAGES):
            raise _without_format(source)
        if isinstance(source.details, PostgresDetails):
            return self._of_publication(blank, statement, source)
        if statement.text_columns or statement.exclude_columns:
            raise unsupported(
                f"TEXT COLUMNS and EXCLUDE COLUMNS of a table of {source.full_name}",
                advice="Leave them out: they are for tables of PostgreSQL.",
            )
        if is_of_changefeed:
            return self._of_changefeed(blank, context, statement, source), ()
        return self._of_references(blank, context, statement, source), ()

    def _of_changefeed(
        self,
        blank: CatalogItem,
        context: Context,
        statement: CreateTableFromSource,
        source: CatalogItem,
    ) -> CatalogItem:
        if statement.columns is None or not statement.key:
            raise user_error(
                "SLACKWATER_SYNTAX_ERROR",
                statement="CREATE TABLE",
                found="the end",
                expected="columns and KEY (...), because the source is one of changefeeds",
            )
        name = blank.name if statement.reference is None else statement.reference.last
        fed = fed_tables(self.state(), source)
        if name.casefold() in {each.settings.name.casefold() for each in fed}:
            raise invalid_option("REFERENCE", "CREATE TABLE", name, "the source has a table of it")
        table = st.ChangefeedTable(
            name, st.TextSlice(statement.columns), statement.key, statement.extras
        )
        declared = self.columns.declared(statement.columns, context)
        details = SourceTableDetails(
            source.id,
            export=_free_export(source, blank.id),
            reference=(name,),
            retain_history_ms=statement.retain_history_ms,
            feed=feed_settings(table),
        )
        return replace(
            blank,
            create_sql=to_sql(_named(statement, blank, source, (name,))),
            desc=feed_columns(table, declared, "CREATE TABLE"),
            depends_on=(source.id,),
            details=details,
        )

    def _of_publication(
        self, blank: CatalogItem, statement: CreateTableFromSource, source: CatalogItem
    ) -> tuple[CatalogItem, tuple[str, ...]]:
        planned = self.postgres.table(source, statement, _free_export(source, blank.id))
        table = planned.table
        reference = (table.schema, table.name)
        shown = _named(statement, blank, source, reference)
        details = SourceTableDetails(
            source.id,
            export=table.export,
            reference=reference,
            retain_history_ms=statement.retain_history_ms,
            upstream=table,
        )
        made = replace(
            blank,
            create_sql=to_sql(shown),
            desc=planned.desc,
            depends_on=(source.id,),
            details=details,
        )
        return made, planned.notices

    def _of_references(
        self,
        blank: CatalogItem,
        context: Context,
        statement: CreateTableFromSource,
        source: CatalogItem,
    ) -> CatalogItem:
        known = references_of(source)
        reference = found_reference(source.full_name, known, statement.reference)
        shown = _named(statement, blank, source, reference)
        details = SourceTableDetails(
            source.id,
            export=_free_export(source, blank.id),
            reference=reference,
            retain_history_ms=statement.retain_history_ms,
        )
        if isinstance(source.details, KafkaDetails):
            return self._of_topic(blank, context, shown, details, source.details)
        return replace(
            blank,
            create_sql=to_sql(shown),
            desc=known[reference],
            depends_on=(source.id,),
            details=details,
        )

    def _of_topic(
        self,
        blank: CatalogItem,
        context: Context,
        statement: CreateTableFromSource,
        details: SourceTableDetails,
        source: KafkaDetails,
    ) -> CatalogItem:
        decoding = statement.decoding
        if decoding is None:
            raise user_error(
                "SLACKWATER_SYNTAX_ERROR",
                statement="CREATE TABLE",
                found="the end",
                expected="FORMAT, because the source reads messages",
            )
        text = statement.columns
        declared = None if text is None else self.columns.declared(text, context)
        planned = self.kafka.messages(blank, context, source.config.topic, decoding, declared)
        registries = dict.fromkeys(planned.settings.registries)
        return replace(
            blank,
            create_sql=to_sql(replace(statement, decoding=planned.shown)),
            desc=planned.desc,
            depends_on=(details.source, *registries),
            details=replace(details, messages=planned.settings),
        )


def with_dead_letters(
    table: CatalogItem,
    source: CatalogItem,
    state: CatalogState,
    new_id: Callable[[], GlobalId],
) -> tuple[CatalogItem, ...]:
    """The new table of a source, and the relation with its dead letters if it is to have them.

    These are a part of the table, and are read with it by the cluster of the source.
    """
    details = table.of(SourceTableDetails)
    if details.messages is None or details.messages.decoding.on_error != "DEAD LETTER":
        return (table,)
    item_id = new_id()
    export = _free_export(source, item_id)
    part = SubsourceDetails(table.id, export, source=source.id)
    name = free_letters_name(state, table)
    letters = part_of(table, item_id, name, DEAD_LETTERS, part)
    made = replace(table, details=replace(details, dead_letters=item_id))
    return made, replace(letters, cluster=source.cluster)


def references_of(source: CatalogItem) -> Mapping[tuple[str, ...], RelationDesc | None]:
    """The references of the source that tables can be of, with their columns if these are known.

    Raises SLACKWATER_UNSUPPORTED for a source that has no tables beside itself.
    """
    found = references(source)
    if found:
        return found
    advice = "It is itself the relation: create a view or a materialized view over it."
    raise unsupported(f"CREATE TABLE ... FROM SOURCE {source.full_name}", advice=advice)


def _named(
    statement: CreateTableFromSource,
    blank: CatalogItem,
    source: CatalogItem,
    reference: tuple[str, ...],
) -> CreateTableFromSource:
    """The statement with names that mean the same everywhere."""
    return replace(
        statement,
        name=name_of(blank),
        source=name_of(source),
        reference=QualifiedName(reference),
        if_not_exists=False,
    )


def _without_format(source: CatalogItem) -> SlackwaterError:
    return unsupported(
        f"FORMAT of a table of {source.full_name}",
        advice="Only sources of messages have tables that say how these become rows.",
    )


def _free_export(source: CatalogItem, item_id: str) -> str:
    """The name of the table's export: its id, which no other table has, or that with more."""
    name = item_id
    while name in source.ingested.exports or name == source.name:
        name += "_"
    return name
