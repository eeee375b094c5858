"""Tables of Iceberg for sources: snapshots of `main`, and what each of them changed.

What a snapshot has changed is told by its files and by those of its parent, as manifests list them:
summaries are for people. Only that one compacts is taken from its summary.

Source: docs/decisions 0080.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa

from slackwater.adapter.external import libraries
from slackwater.adapter.external.iceberg_catalogs import failures, opened
from slackwater.adapter.external.iceberg_listing import listed
from slackwater.adapter.external.iceberg_rows import KeptDeletes, TableFiles, schema_json
from slackwater.repr.errors import SlackwaterError, first_line, user_error
from slackwater.repr.relation import DIFF_COLUMN
from slackwater.storage.access import AwsAccess, IcebergAccess
from slackwater.storage.iceberg.columns import comparable_ids, table_columns
from slackwater.storage.iceberg.live_files import (
    DataFile,
    DeleteFile,
    FileChange,
    LiveFiles,
    Partitioning,
    by_value_alone,
    differences,
)
from slackwater.storage.iceberg.projection import Unreadable
from slackwater.storage.iceberg.schema import Json, table_identifier
from slackwater.storage.lake.config import IcebergPlace
from slackwater.storage.lake.history import (
    TableColumn,
    TableHistory,
    TableVersion,
    VersionChanges,
)
from slackwater.storage.lake.ingestion import history_lost, replaced, unreadable

_FORMAT = 2
_EMPTY = ""
"""The version of a table that has no snapshot yet."""
_COMPACTS = "replace"


@dataclass(frozen=True, slots=True)
class IcebergOrigin:
    """The table of a source.

    `access` leads to the catalog, `aws` to where the files are, if that is to be said. `columns`
    are those of the source: deletes by their values are told as such, all others as rows that go.
    What is left are names in messages.
    """

    access: IcebergAccess
    aws: AwsAccess | None
    place: IcebergPlace
    object_name: str
    connection_name: str
    columns: Sequence[TableColumn] = ()

    @property
    def shown(self) -> str:
        """The table as messages name it."""
        return self.place.shown

    def opened(self) -> TableHistory:
        """Raises SLACKWATER_CONNECTOR_MISSING, and SLACKWATER_INVALID_OPTION for an empty name."""
        identifier = table_identifier(self.place, "CREATE SOURCE")
        return IcebergHistory(self, identifier, libraries.pyiceberg())

    def unreachable(self, reason: str) -> SlackwaterError:
        """SLACKWATER_SOURCE_UNREACHABLE."""
        for access in (self.access, self.aws):
            reason = reason if access is None else access.scrubbed(reason)
        return user_error(
            "SLACKWATER_SOURCE_UNREACHABLE",
            objectName=self.object_name,
            upstream=self.shown,
            connectionName=self.connection_name,
            reason=reason.rstrip("."),
        )

    def lost(self, what: str) -> SlackwaterError:
        """SLACKWATER_SOURCE_HISTORY_LOST."""
        return history_lost(self.object_name, f"{what} of {self.shown} is there no more")

    def replaced(self, before: str, now: str) -> SlackwaterError:
        """SLACKWATER_SOURCE_REPLACED."""
        return replaced(self.object_name, self.shown, before, now)

    def unreadable(self, reason: str) -> SlackwaterError:
        """SLACKWATER_SOURCE_TABLE_UNREADABLE."""
        return unreadable(self.object_name, self.shown, reason)


@dataclass(slots=True)
class IcebergHistory:
    """A `TableHistory` over pyiceberg."""

    origin: IcebergOrigin
    identifier: tuple[str, ...]
    library: Any
    _catalog: Any = field(default=None, init=False)
    _table: Any = field(default=None, init=False)
    _kept: KeptDeletes = field(default_factory=KeptDeletes, init=False)
    _manifests: dict[str, tuple[DataFile | DeleteFile, ...]] = field(
        default_factory=dict, init=False
    )

    def newest(self) -> TableVersion:
        return self._version(self._loaded().current_snapshot())

    def last_number(self) -> int:
        return self.newest().number

    def at(self, number: int) -> TableVersion:
        metadata = self._loaded()
        line = list(_line(metadata))
        for snapshot in line:
            if _number(snapshot) == number:
                return self._version(snapshot)
        if not line and not number:
            return self._version(None)
        raise self.origin.lost(f"the version {number}")

    def columns(self, version: TableVersion) -> Sequence[TableColumn]:
        """Raises SLACKWATER_UNSUPPORTED_TYPE, too."""
        return table_columns(self._schema(self._snapshot(version)))

    def known_rows(self, version: TableVersion) -> int | None:
        snapshot = self._snapshot(version)
        if snapshot is None:
            return 0
        # A summary is good enough for people.
        told = None if snapshot.summary is None else snapshot.summary["total-records"]
        return int(told) if told is not None and str(told).isdecimal() else None

    def contents(self, version: TableVersion) -> Iterator[pa.Table]:
        snapshot = self._snapshot(version)
        files = self._files(snapshot)
        with self._reaching():
            changes = list(self._live(snapshot).contents())
        for rows in self._rows(files, changes):
            yield rows.drop_columns([DIFF_COLUMN])

    def after(self, version: TableVersion) -> Iterator[VersionChanges]:
        return self._changes(self._snapshots_after(version))

    def close(self) -> None:
        close = getattr(self._catalog, "close", None)
        if close is not None:
            close()
        self._catalog = self._table = None

    def _snapshots_after(self, version: TableVersion) -> list[Any]:
        """The snapshots after that version, the first of them first, behind that of the version."""
        origin, metadata = self.origin, self._loaded()
        if str(metadata.table_uuid) != version.table:
            raise origin.replaced(f"the table {version.table}", f"the table {metadata.table_uuid}")
        found: list[Any] = []
        for snapshot in _line(metadata):
            if str(snapshot.snapshot_id) == version.version:
                return [snapshot, *reversed(found)]
            if _number(snapshot) <= version.number:
                raise origin.replaced(_named(version.version), _named(snapshot.snapshot_id))
            found.append(snapshot)
        if version.version == _EMPTY:
            return [None, *reversed(found)]
        if not found or metadata.snapshot_by_id(int(version.version)) is not None:
            current = found[0].snapshot_id if found else _EMPTY
            raise origin.replaced(_named(version.version), _named(current))
        raise origin.lost(_named(version.version))

    def _changes(self, snapshots: Sequence[Any]) -> Iterator[VersionChanges]:
        for before, snapshot in pairwise(snapshots):
            with self._reaching():
                changes: list[FileChange] = []
                deletes: list[DeleteFile] = []
                if _operation(snapshot) != _COMPACTS:
                    old, new = self._live(before), self._live(snapshot)
                    deletes += by_value_alone(old, new, self._ids(snapshot), self._partitioning())
                    changes += differences(old, new.without(deletes))
                columns = table_columns(self._schema(snapshot))
            files = self._files(snapshot)
            yield VersionChanges(
                version=self._version(snapshot),
                columns=columns,
                rows=self._rows(files, changes),
                deleted=self._deleted(files, deletes),
                size_bytes=sum(each.size_bytes for each in changes)
                + sum(each.size_bytes for each in deletes),
            )

    def _ids(self, snapshot: Any) -> frozenset[int]:
        """The ids of the columns of the source whose values tell which rows go."""
        known = [each.identity for each in self.origin.columns]
        return comparable_ids(self._schema(snapshot), known)

    def _partitioning(self) -> Partitioning:
        return {
            spec_id: {each.source_id for each in spec.fields if str(each.transform) != "void"}
            for spec_id, spec in self._table.metadata.specs().items()
        }

    def _deleted(self, files: TableFiles, deletes: Sequence[DeleteFile]) -> Iterator[pa.Table]:
        for delete in deletes:
            with self._reaching(delete.path):
                yield files.values(delete)

    def _rows(self, files: TableFiles, changes: Sequence[FileChange]) -> Iterator[pa.Table]:
        for change in changes:
            with self._reaching(change.file.path):
                yield from files.changed(change)

    def _files(self, snapshot: Any) -> TableFiles:
        return TableFiles(self._table, self._schema(snapshot)["fields"], self._kept)

    def _live(self, snapshot: Any) -> LiveFiles:
        """The files of a snapshot; of several manifests those that the last one had are known."""
        if snapshot is None:
            return LiveFiles.of(())
        known, found = self._manifests, {}
        for manifest in snapshot.manifests(self._table.io):
            path = manifest.manifest_path
            found[path] = known[path] if path in known else tuple(self._read(manifest))
        self._manifests = found
        return LiveFiles.of(each for files in found.values() for each in files)

    def _read(self, manifest: Any) -> Iterator[DataFile | DeleteFile]:
        for each in listed(self.library, self._table, manifest):
            yield each.file

    def _schema(self, snapshot: Any) -> Json:
        metadata = self._table.metadata
        found = None
        if snapshot is not None and snapshot.schema_id is not None:
            found = metadata.schema_by_id(snapshot.schema_id)
        return schema_json(metadata.schema() if found is None else found)

    def _snapshot(self, version: TableVersion) -> Any:
        """The snapshot of a version; None: that of a table without."""
        metadata = self._loaded() if self._table is None else self._table.metadata
        if version.version == _EMPTY:
            return None
        snapshot_id = int(version.version)
        found = metadata.snapshot_by_id(snapshot_id)
        if found is None:
            found = self._loaded().snapshot_by_id(snapshot_id)
        if found is None:
            raise self.origin.lost(_named(snapshot_id))
        return found

    def _version(self, snapshot: Any) -> TableVersion:
        metadata = self._table.metadata
        table = str(metadata.table_uuid)
        if snapshot is None:
            return TableVersion(0, table, _EMPTY, 0)
        return TableVersion(
            _number(snapshot), table, str(snapshot.snapshot_id), snapshot.timestamp_ms
        )

    def _loaded(self) -> Any:
        """The table's metadata as it is now."""
        with self._reaching():
            if self._catalog is None:
                self._catalog = opened(self.library, self.origin.access, self.origin.aws)
            self._table = self._catalog.load_table(self.identifier)
        metadata = self._table.metadata
        if metadata.format_version != _FORMAT:
            raise self.origin.unreadable(
                f"its format version is {metadata.format_version}, and not {_FORMAT}"
            )
        return metadata

    @contextmanager
    def _reaching(self, file: str = "") -> Iterator[None]:
        """Makes errors of sources of what the catalog, its database and files raise."""
        known = self.library.exceptions
        try:
            yield
        except (known.NoSuchTableError, known.NoSuchNamespaceError):
            raise self.origin.unreadable("there is no such table") from None
        except Unreadable as error:
            raise self.origin.unreadable(f"{file}: {error}" if file else str(error)) from None
        except FileNotFoundError as missing:
            raise self.origin.lost(f"a file ({first_line(str(missing))})") from None
        except failures(self.library) as failed:
            reason = first_line(str(failed) or type(failed).__name__)
            raise self.origin.unreachable(reason) from None


def _line(metadata: Any) -> Iterator[Any]:
    """The snapshots that led to the current one, from it on back, as far as they are there."""
    snapshot = metadata.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent_id = snapshot.parent_snapshot_id
        snapshot = None if parent_id is None else metadata.snapshot_by_id(parent_id)


def _number(snapshot: Any) -> int:
    found: int = snapshot.sequence_number or 0
    return found


def _operation(snapshot: Any) -> str | None:
    return None if snapshot.summary is None else str(snapshot.summary.operation.value)


def _named(snapshot_id: object) -> str:
    return "a table without snapshots" if snapshot_id == _EMPTY else f"the snapshot {snapshot_id}"
