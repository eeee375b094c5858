"""The references of sources: what their tables can be of.

Source: docs/decisions 0073.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from slackwater.adapter.catalog.details import (
    ChangefeedDetails,
    GeneratorDetails,
    KafkaDetails,
    PostgresDetails,
)
from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.adapter.sources.feed_tables import fed_tables
from slackwater.planner.parser.names import QualifiedName
from slackwater.repr.errors import user_error
from slackwater.repr.relation import RelationDesc
from slackwater.storage.generators import GeneratorConfig, exports


def references(source: CatalogItem) -> Mapping[tuple[str, ...], RelationDesc | None]:
    """The references by their names, with their columns if the source knows these.

    A source that is itself its one relation has none.
    """
    match source.details:
        case GeneratorDetails(config=GeneratorConfig(kind=kind)) if source.shard_id is None:
            return {(kind.lower(), name): desc for name, desc in exports(kind).items()}
        case KafkaDetails(config=topic) if topic.decoding is None:
            return {(topic.topic,): None}
        case _:
            return {}


def referenced_columns(
    source: CatalogItem, state: CatalogState
) -> Mapping[tuple[str, ...], Sequence[str] | None]:
    """The references by their names, with the names of their columns if the source knows these.

    A publication has those that it had when it was last asked. A changefeed has those of its
    tables, and of its dead letters when it was last asked.
    """
    match source.details:
        case ChangefeedDetails(seen=seen):
            columns: dict[tuple[str, ...], Sequence[str] | None] = {(name,): None for name in seen}
            for each in fed_tables(state, source):
                table = state.items.get(each.item)
                if table is not None:
                    columns[each.settings.name,] = table.stored.desc.names
            return columns
        case PostgresDetails(referenced=found, config=config):
            if found is None:
                return {(e.schema, e.name): [c.name for c in e.columns] for e in config.tables}
            return {(each.schema, each.name): each.columns for each in found}
        case _:
            known = references(source).items()
            return {name: None if desc is None else desc.names for name, desc in known}


def referenced_ms(source: CatalogItem) -> int:
    """When the source was last asked what it has, in milliseconds since the epoch."""
    match source.details:
        case (
            ChangefeedDetails(referenced_ms=found)
            | GeneratorDetails(referenced_ms=found)
            | KafkaDetails(referenced_ms=found)
            | PostgresDetails(referenced_ms=found)
        ):
            return source.created_ms if found is None else found
        case _:
            return source.created_ms


def found_reference(
    source: str, known: Collection[tuple[str, ...]], wanted: QualifiedName | None
) -> tuple[str, ...]:
    """The reference that is meant, which may be named without what it is in; None: the only one.

    Raises SLACKWATER_UNKNOWN_REFERENCE.
    """
    parts = () if wanted is None else wanted.parts
    found = [each for each in known if each[len(each) - len(parts) :] == parts]
    if len(found) == 1:
        return found[0]
    raise user_error(
        "SLACKWATER_UNKNOWN_REFERENCE",
        objectName=source,
        reference=".".join(parts) or "none",
        references=", ".join(sorted(".".join(each) for each in known)),
    )
