"""Tables that sources fill: from the statement to the item of the catalog.

Source: docs/decisions 0073.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import (
    ChangefeedDetails,
    KafkaDetails,
    PostgresDetails,
    SourceTableDetails,
)
from slackwater.adapter.catalog.model import CatalogItem
from slackwater.adapter.catalog.render import name_of
from slackwater.adapter.ddl.planned_columns import DeclaredColumns
from slackwater.adapter.ddl.planned_kafka import KafkaPlanner
from slackwater.adapter.sources.references import found_reference, references
from slackwater.planner.parser.canonical import to_sql
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.source_tables import CreateTableFromSource
from slackwater.repr.errors import unsupported, user_error
from slackwater.repr.relation import RelationDesc


@dataclass(frozen=True, slots=True)
class SourceTablePlanner:
    """Plans the catalog items of tables that sources fill."""

    kafka: KafkaPlanner
    columns: DeclaredColumns

    def plan(
        self,
        blank: CatalogItem,
        context: Context,
        statement: CreateTableFromSource,
        source: CatalogItem,
    ) -> CatalogItem:
        """The item of the new table `blank`, without its shard.

        Raises SLACKWATER_UNKNOWN_REFERENCE, SLACKWATER_UNSUPPORTED, SLACKWATER_SYNTAX_ERROR, and
        what `KafkaPlanner.messages` raises.
        """
        known = references_of(source)
        reference = found_reference(source.full_name, known, statement.reference)
        shown = replace(
            statement,
            name=name_of(blank),
            source=name_of(source),
            reference=QualifiedName(reference),
            if_not_exists=False,
        )
        details = SourceTableDetails(
            source.id,
            export=_free_export(source, blank.id),
            reference=reference,
            retain_history_ms=statement.retain_history_ms,
        )
        if isinstance(source.details, KafkaDetails):
            return self._of_topic(blank, context, shown, details, source.details)
        if statement.decoding is not None:
            raise unsupported(
                f"FORMAT of a table of {source.full_name}",
                advice="Only sources of messages have tables that say how these become rows.",
            )
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
        if decoding.on_error == "DEAD LETTER":
            raise unsupported(
                "ON ERROR DEAD LETTER of a table",
                advice="Use PROPAGATE or SKIP, or a source with FORMAT and ON ERROR DEAD LETTER.",
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


def references_of(source: CatalogItem) -> Mapping[tuple[str, ...], RelationDesc | None]:
    """The references of the source that tables can be of, with their columns if these are known.

    Raises SLACKWATER_UNSUPPORTED for a source that has no tables beside itself.
    """
    if isinstance(source.details, ChangefeedDetails):
        raise unsupported(
            f"CREATE TABLE ... FROM SOURCE {source.full_name}",
            advice="ALTER SOURCE ... ADD TABLE adds a table to a source of changefeeds.",
        )
    if isinstance(source.details, PostgresDetails):
        raise unsupported(
            f"CREATE TABLE ... FROM SOURCE {source.full_name}",
            advice="Name the tables of a publication when the source is created, in FOR TABLES; a "
            "source of its own has others.",
        )
    found = references(source)
    if found:
        return found
    advice = "It is itself the relation: create a view or a materialized view over it."
    raise unsupported(f"CREATE TABLE ... FROM SOURCE {source.full_name}", advice=advice)


def _free_export(source: CatalogItem, item_id: str) -> str:
    """The name of the table's export: its id, which no other table has, or that with more."""
    name = item_id
    while name in source.ingested.exports or name == source.name:
        name += "_"
    return name
