"""The answer to `/v1/system`: system relations, and why objects cannot be read, all at one time."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.adapter.catalog.model import CatalogItem
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.protocol import System
from slackwater.adapter.system.relations import SYSTEM_RELATIONS
from slackwater.adapter.system.tables import SystemTables
from slackwater.persist.appends import UnknownShard
from slackwater.persist.error_shards import Standing, standing
from slackwater.persist.ipc import to_stream
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId

_BY_NAME = {f"{each.schema_name}.{each.name}": each for each in SYSTEM_RELATIONS}
_LATEST_MS = 2**62
UNFINISHED = "finished_at"
"""A column of what has begun and ends at some time, NULL until then."""


@dataclass(frozen=True, slots=True)
class Looks:
    """Looks at the environment as a whole, for who watches it. Begins no session, holds nothing."""

    relations: Relations
    system: SystemTables

    def look(self, asked: System) -> Mapping[str, Any]:
        """The answer of protocol section 2. Raises SLACKWATER_METASTORE_UNAVAILABLE."""
        known = {name: _BY_NAME[name] for name in asked.relations if name in _BY_NAME}
        snapshot = self.system.snapshot(frozenset(each.name for each in known.values()))
        tables = {name: each.table(snapshot) for name, each in known.items()}
        streams = {
            name: to_stream(_later(table, asked.after.get(name))) for name, table in tables.items()
        }
        return {
            "now": snapshot.now_ms,
            "relations": {name: base64.b64encode(each).decode() for name, each in streams.items()},
            "unknown": [name for name in asked.relations if name not in known],
            "errors": [
                {"object_id": global_id, "since": since, **error.to_json()}
                for global_id, since, error in self._errors()
            ],
        }

    def _errors(self) -> Iterator[tuple[GlobalId, Timestamp | None, SlackwaterError]]:
        """The objects that cannot be read at their last complete time, since when, and why."""
        for item in tuple(self.relations.state.items.values()):
            if item.errors_shard is None:
                continue
            try:
                found = self._standing(item, item.errors_shard)
            except UnknownShard:
                # It was dropped meanwhile.
                continue
            except SlackwaterError as error:
                if error.condition == "SLACKWATER_CONTENTS_LOST":
                    yield item.id, None, error
                elif error.condition != "SLACKWATER_DEPENDENCY_DROPPED":
                    raise
                continue
            if found is not None:
                yield item.id, found.since, found.error

    def _standing(self, item: CatalogItem, errors_shard: int) -> Standing | None:
        last = self.relations.upper(item).last_complete()
        return standing(self.relations.persist.reads, errors_shard, item.full_name, last)


def _later(table: pa.Table, after_ms: int | None) -> pa.Table:
    """The rows at or after `after_ms` by their first TIMESTAMP that is NOT NULL, and those that
    have a `finished_at` and have not finished; all, if there is no such column.
    """
    found = [f for f in table.schema if pa.types.is_timestamp(f.type) and not f.nullable]
    if after_ms is None or not found:
        return table
    in_ms = table.column(found[0].name).cast(pa.timestamp("ms", tz=found[0].type.tz), safe=False)
    wanted = pc.greater_equal(in_ms.cast(pa.int64()), min(after_ms, _LATEST_MS))
    if UNFINISHED in table.column_names:
        wanted = pc.or_(wanted, pc.is_null(table.column(UNFINISHED)))
    return table.filter(wanted)
