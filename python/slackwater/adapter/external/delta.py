"""Delta tables for sinks, through delta-rs.

The progress of a sink is in its table's log as transactions of applications, which are there as
long as the table is: neither checkpoints nor the cleanup of the log leave them out.

Source: docs/decisions 0076.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from slackwater.adapter.external.delta_folder import DeltaFolder
from slackwater.adapter.external.libraries import deltalake
from slackwater.repr.errors import SlackwaterError, invalid_option
from slackwater.repr.frontier import Frontier
from slackwater.repr.relation import RelationDesc
from slackwater.storage.lake.config import LakeSinkConfig
from slackwater.storage.lake.delta_columns import check_fields, delta_fields
from slackwater.storage.lake.table import (
    LakeChanges,
    LakeProgress,
    LakeTable,
    TableChanged,
    Written,
    telling,
    unheard,
)
from slackwater.storage.sink_errors import progress_lost, unreachable

_FEATURES = frozenset({"appendOnly", "invariants", "timestampNtz"})
"""The features that tables may ask of their writers."""
_LAST_PLAIN_VERSION = 2
"""The last version of the protocol for writers that asks for no more than that."""
_FEATURE_VERSION = 7
"""The version of the protocol for writers that names features."""
_BATCH_ROWS = 64 * 1024


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    """The table of a sink: see `LakeTarget`. `writer` is the sink's name in the table's log."""

    folder: DeltaFolder
    object_name: str
    writer: str
    config: LakeSinkConfig
    desc: RelationDesc

    def ensure(self) -> None:
        library = deltalake()
        if "%" in self.folder.uri:
            raise self._refused("delta-rs finds no folder with a % in its path")
        fields = delta_fields(self.config, self.desc, self.object_name)
        with self.answers():
            try:
                table = self.folder.opened(library)
            except library.exceptions.TableNotFoundError:
                schema = library.Schema.from_json(json.dumps({"type": "struct", "fields": fields}))
                self.folder.make()
                table = library.DeltaTable.create(
                    self.folder.url,
                    schema,
                    mode="ignore",
                    storage_options=dict(self.folder.options),
                )
                self.folder.sync(table.version())
        self.check(table)
        if self.config.mode == "UPSERT" and self.progress(table) is None and table.file_uris():
            raise self._refused("MODE UPSERT begins with a table without rows")

    def opened(self) -> LakeTable:
        return DeltaSinkTable(self, deltalake())

    def progress(self, table: Any) -> LakeProgress | None:
        """The last commit of the sink; None: there is none."""
        found = [table.transaction_version(name) for name in self._names]
        if found[0] is None:
            return None
        frontier, version, epoch = (0 if each is None else int(each) for each in found)
        return LakeProgress(Frontier(frontier), version, epoch)

    def transactions(self, library: Any, progress: LakeProgress) -> list[Any]:
        """The progress as the log has it."""
        values = (progress.frontier.value, progress.version, progress.epoch)
        pairs = zip(self._names, values, strict=True)
        return [library.Transaction(name, value) for name, value in pairs]

    def unreachable(self, reason: str) -> SlackwaterError:
        """SLACKWATER_SINK_UNREACHABLE."""
        return unreachable(self.object_name, self.config.place.shown, reason)

    def lost(self, reason: str) -> SlackwaterError:
        """SLACKWATER_SINK_PROGRESS_LOST."""
        return progress_lost(self.object_name, self.config.place.shown, reason)

    @property
    def _names(self) -> tuple[str, str, str]:
        return self.writer, f"{self.writer}/version", f"{self.writer}/epoch"

    def check(self, table: Any) -> None:
        """Finds that the sink can write the table. Raises what `ensure` raises."""
        fields = delta_fields(self.config, self.desc, self.object_name)
        check_fields(fields, json.loads(table.schema().to_json())["fields"], self.object_name)
        asked = table.protocol()
        features = set(asked.writer_features or ())
        if asked.min_writer_version != _FEATURE_VERSION:
            is_plain = asked.min_writer_version <= _LAST_PLAIN_VERSION
            features = set() if is_plain else {f"the version {asked.min_writer_version}"}
        for each in sorted(features - _FEATURES):
            raise self._refused(f"the table asks its writers for {each}")
        is_append_only = table.metadata().configuration.get("delta.appendOnly", "")
        if self.config.mode == "UPSERT" and is_append_only.lower() == "true":
            raise self._refused("rows may only be appended to it")

    def _refused(self, reason: str) -> SlackwaterError:
        return invalid_option("PATH", "CREATE SINK", repr(self.folder.uri), reason)

    @contextmanager
    def answers(self) -> Iterator[None]:
        """Says what delta-rs says in our words: it raises errors of several types."""
        try:
            yield
        except (SlackwaterError, TableChanged):
            raise
        except Exception as error:
            raise self.unreachable(self.folder.reason(error)) from None


@dataclass(slots=True)
class DeltaSinkTable:
    """One loaded version of the table: a `LakeTable`."""

    target: DeltaTarget
    library: Any
    _table: Any = field(default=None, init=False)

    def load(self) -> LakeProgress | None:
        target, library = self.target, self.library
        with target.answers():
            try:
                self._table = target.folder.opened(library)
            except library.exceptions.TableNotFoundError:
                raise target.lost("it is gone") from None
            found = target.progress(self._table)
            if found is not None:
                # Without progress it may be another table, which is to be told in the first place.
                target.check(self._table)
            return found

    def commit(
        self, changes: LakeChanges, progress: LakeProgress, written: Written = unheard
    ) -> None:
        target, library = self.target, self.library
        properties = library.CommitProperties(
            app_transactions=target.transactions(library, progress),
            # What the library commits again would be made from another table than the one loaded.
            max_commit_retries=0,
        )
        with target.answers():
            inserted = self._completed(changes.inserted)
            try:
                if changes.deleted is None or not len(changes.deleted) or self._is_empty():
                    batches = inserted.to_batches(max_chunksize=_BATCH_ROWS)
                    rows = pa.RecordBatchReader.from_batches(
                        inserted.schema, telling(batches, written)
                    )
                    library.write_deltalake(
                        self._table, rows, mode="append", commit_properties=properties
                    )
                else:
                    self._merge(inserted, changes.deleted, properties)
            except library.exceptions.CommitFailedError:
                raise TableChanged from None
            target.folder.sync(self._table.version())

    def tidy(self) -> None:
        """Nothing: OPTIMIZE of others does it."""

    def close(self) -> None:
        self._table = None

    def _completed(self, rows: pa.Table) -> pa.Table:
        """The rows with all columns of the table, in its order."""
        for column in pa.schema(self._table.schema()):
            if column.name not in rows.column_names:
                rows = rows.append_column(column, pa.nulls(len(rows), column.type))
        return rows.select([each.name for each in self._table.schema().fields])

    def _is_empty(self) -> bool:
        return not self._table.file_uris()

    def _merge(self, inserted: pa.Table, deleted: pa.Table, properties: Any) -> None:
        """Deletes and inserts in one commit."""
        keys, names = deleted.column_names, inserted.column_names
        mark = _free_name(names)
        gone = pa.table(
            {
                **{
                    name: pa.nulls(len(deleted), inserted.schema.field(name).type) for name in names
                },
                **{name: deleted.column(name) for name in keys},
            }
        )
        marked = [
            rows.append_column(mark, pa.repeat(is_gone, len(rows)))
            for rows, is_gone in ((gone, True), (inserted.cast(gone.schema), False))
        ]
        same = " AND ".join(f"(t.{_q(key)} IS NOT DISTINCT FROM s.{_q(key)})" for key in keys)
        merger = self._table.merge(
            pa.concat_tables(marked),
            predicate=f"{same} AND s.{_q(mark)}",
            source_alias="s",
            target_alias="t",
            commit_properties=properties,
        )
        columns = {_q(name): f"s.{_q(name)}" for name in names}
        is_new = f"NOT s.{_q(mark)}"
        merger.when_matched_delete().when_not_matched_insert(columns, predicate=is_new).execute()


def _free_name(names: list[str]) -> str:
    name = "gone"
    while name in map(str.lower, names):
        name += "_"
    return name


def _q(name: str) -> str:
    """The name as DataFusion takes it."""
    return '"' + name.replace('"', '""') + '"'
