"""The system relations as collections that a bind can serve: rows as of the moment of the bind."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from slackwater.adapter.catalog.model import CatalogItem
from slackwater.adapter.system_relations import SYSTEM_RELATIONS, SystemSnapshot, system_item
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN


class SystemTables:
    """Serves the relations of `mz_catalog`, `mz_internal` and `mz_introspection`."""

    def __init__(self, snapshot: Callable[[], SystemSnapshot]) -> None:
        self._snapshot = snapshot
        self._by_id = {relation.global_id: relation for relation in SYSTEM_RELATIONS}
        self._by_name = {(r.schema_name, r.name): r for r in SYSTEM_RELATIONS}

    def item(self, global_id: GlobalId) -> CatalogItem | None:
        relation = self._by_id.get(global_id)
        return None if relation is None else system_item(relation)

    def named(self, schema_name: str, name: str) -> CatalogItem | None:
        relation = self._by_name.get((schema_name.lower(), name.lower()))
        return None if relation is None else system_item(relation)

    def in_schema(self, schema_name: str) -> tuple[CatalogItem, ...]:
        wanted = schema_name.lower()
        return tuple(system_item(r) for r in SYSTEM_RELATIONS if r.schema_name == wanted)

    def schemas(self) -> tuple[str, ...]:
        return tuple(sorted({relation.schema_name for relation in SYSTEM_RELATIONS}))

    def table(self, global_id: GlobalId) -> pa.Table:
        """The rows of a system relation now."""
        return self._by_id[global_id].rows(self._snapshot())

    def rows(self, global_id: GlobalId, time: Timestamp) -> bytes:
        """The rows as an Arrow IPC stream of updates at `time`."""
        table = self.table(global_id)
        count = table.num_rows
        table = table.append_column(
            pa.field(TIME_COLUMN, pa.int64(), False), pa.repeat(pa.scalar(int(time)), count)
        ).append_column(pa.field(DIFF_COLUMN, pa.int64(), False), pa.repeat(pa.scalar(1), count))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())
