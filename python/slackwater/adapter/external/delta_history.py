"""The versions of a Delta table, as a source reads them.

The log has an entry for each version: which files came and which went. Rows are read from these
files here, so that a version costs what it changed; delta-rs says what the table has in a version
as a whole: checkpoints, values of partitions, deletion vectors. The change feed of a table is not
read: files say the same, whether a table has one or not.

Source: docs/decisions 0079; the protocol of Delta.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.adapter.external.delta_folder import LOG, DeltaFolder, Seen
from slackwater.adapter.external.libraries import deltalake
from slackwater.persist.nested import as_type
from slackwater.repr.errors import SlackwaterError, invalid_option
from slackwater.repr.relation import JsonType, arrow_type, with_diff
from slackwater.storage.lake.delta_columns import plain_type
from slackwater.storage.lake.history import TableColumn, TableVersion, VersionChanges
from slackwater.storage.lake.ingestion import history_lost, replaced, unreadable

_FEATURES = frozenset(
    {
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
"""The features that tables may ask of their readers."""
_PHYSICAL_NAME = "delta.columnMapping.physicalName"
_PARTS = ("elementType", "keyType", "valueType")
_BATCH_ROWS = 65_536

Action = Mapping[str, Any]


class DeltaHistory:
    """One Delta table: see `TableHistory`."""

    def __init__(self, object_name: str, folder: DeltaFolder) -> None:
        """Raises SLACKWATER_CONNECTOR_MISSING, SLACKWATER_INVALID_OPTION."""
        self._library = deltalake()
        self._object_name = object_name
        self._folder = folder
        self._known: _Snapshot | None = None
        self._columns: tuple[TableVersion, Sequence[TableColumn]] | None = None
        self._entry: tuple[int, Seen, str] | None = None
        if "%" in folder.uri:
            raise self._refused("delta-rs finds no folder with a % in its path")

    def newest(self) -> TableVersion:
        return self.at(self.last_number())

    def last_number(self) -> int:
        try:
            last = self._folder.last_entry()
        except OSError as error:
            raise self._unreadable(self._folder.reason(error), LOG) from None
        if last is None:
            raise self._unreadable("it has no entries of a Delta table", LOG)
        return last

    def at(self, number: int) -> TableVersion:
        snapshot = self._snapshot(number)
        return TableVersion(
            number, snapshot.table, self._token(number) or "", _committed_ms(self._actions(number))
        )

    def columns(self, version: TableVersion) -> Sequence[TableColumn]:
        if self._columns is None or self._columns[0] != version:
            self._columns = version, self._snapshot(version.number).columns
        return self._columns[1]

    def known_rows(self, version: TableVersion) -> int | None:
        return self._snapshot(version.number).known_rows

    def contents(self, version: TableVersion) -> Iterator[pa.Table]:
        snapshot = self._snapshot(version.number)
        for path, partition in snapshot.files.items():
            found = _DataFile(path, partition, snapshot.kept(self._place(path)))
            yield from self._rows(found, snapshot.columns, version.number)

    def after(self, version: TableVersion) -> Iterator[VersionChanges]:
        number = version.number
        token = self._token(number)
        last = self.last_number() if token is None else self._last_after(number)
        if last < number or (token is not None and token != version.version):
            shown = f"the table {self._folder.uri}"
            raise replaced(
                self._object_name,
                shown,
                f"{version.table} at version {number}",
                f"{self.newest().table} at version {last}",
            )
        for following in range(number + 1, last + 1):
            changes = self._changes(version, following)
            yield changes
            version = changes.version

    def close(self) -> None:
        self._known = self._columns = None

    def _changes(self, before: TableVersion, number: int) -> VersionChanges:
        actions = self._actions(number)
        known, table = self._columns, before.table
        columns = known[1] if known is not None and known[0] == before else None
        for each in actions:
            if "protocol" in each:
                self._check_protocol(_Protocol.of_action(each["protocol"]))
            if "metaData" in each:
                self._check_metadata(each["metaData"]["configuration"] or {})
                columns = _columns(json.loads(each["metaData"]["schemaString"])["fields"])
                table = each["metaData"]["id"]
        if columns is None:
            # An entry that does not say the columns leaves them as they were.
            columns = self._snapshot(number).columns
        version = TableVersion(number, table, self._token(number) or "", _committed_ms(actions))
        # A version after it begins with its columns.
        self._columns = version, columns
        gone, come = (
            {each[kind]["path"]: each[kind] for each in actions if _is_change(each.get(kind))}
            for kind in ("remove", "add")
        )
        return VersionChanges(
            version=version,
            columns=columns,
            rows=self._changed_rows(number, gone, come, columns),
            deleted=iter(()),
            size_bytes=sum(each.get("size") or 0 for each in (*gone.values(), *come.values())),
        )

    def _changed_rows(
        self,
        number: int,
        gone: Mapping[str, Action],
        come: Mapping[str, Action],
        columns: Sequence[TableColumn],
    ) -> Iterator[pa.Table]:
        before = self._files(number - 1, gone)
        now = self._files(number, come)
        for path, old in before.items():
            new = now.get(path)
            lost = old if new is None else old.without(new)
            for rows in self._rows(lost, columns, number):
                yield with_diff(rows, -1)
        for path, new in now.items():
            known = before.get(path)
            fresh = new if known is None else new.without(known)
            for rows in self._rows(fresh, columns, number):
                yield with_diff(rows)

    def _files(self, number: int, actions: Mapping[str, Action]) -> Mapping[str, _DataFile]:
        """The files of actions, as the table has them in that version."""
        is_plain = all(
            not each.get("partitionValues") and not each.get("deletionVector")
            for each in actions.values()
        )
        if is_plain and all("partitionValues" in each for each in actions.values()):
            return {path: _DataFile(path, {}, None) for path in actions}
        snapshot = self._snapshot(number)
        lacking = [path for path in actions if path not in snapshot.files]
        if lacking:
            raise self._lost(f"version {number} of the table does not have its file {lacking[0]}")
        return {
            path: _DataFile(path, snapshot.files[path], snapshot.kept(self._place(path)))
            for path in actions
        }

    def _rows(
        self, file: _DataFile, columns: Sequence[TableColumn], number: int
    ) -> Iterator[pa.Table]:
        """The rows of a file that count."""
        if file.is_empty:
            return
        place, start = self._place(file.path), 0
        try:
            with self._folder.open(place) as opened, _parquet(opened) as found:
                present = set(found.schema_arrow.names)
                wanted = [each.identity for each in columns if each.name not in file.partition]
                # A file has at least one column, of which the number of its rows is known.
                stored = [n for n in wanted if n in present] or found.schema_arrow.names[:1]
                for batch in found.iter_batches(_BATCH_ROWS, columns=stored):
                    rows = _completed(pa.Table.from_batches([batch]), columns, file.partition)
                    yield rows if file.kept is None else rows.filter(file.mask(start, len(rows)))
                    start += batch.num_rows
        except FileNotFoundError:
            raise self._lost(
                f"the file {file.path}, which version {number} needs, is gone"
            ) from None
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(self._folder.reason(error), place) from None

    def _place(self, path: str) -> str:
        found = self._folder.place(path)
        if found is None:
            raise self._unreadable("it is in another file system than the table", path)
        return found

    def _last_after(self, number: int) -> int:
        """The number of the last version, or of one up to which an entry is gone.

        A log may have hundreds of thousands of entries, and is looked at all the time: so it is not
        listed. Entries only go that are before a checkpoint.
        """
        with self._answers():
            while self._folder.seen(self._folder.entry(number + 1)) is not None:
                number += 1
        return max(number, self._checkpointed())

    def _checkpointed(self) -> int:
        """The version of the last checkpoint that the log names; 0: it names none."""
        try:
            named = self._folder.read(f"{self._folder.root}/{LOG}/_last_checkpoint")
            return int(json.loads(named)["version"])
        except (OSError, ValueError, LookupError, TypeError):
            return 0

    def _actions(self, number: int) -> Sequence[Action]:
        path = self._folder.entry(number)
        try:
            lines = self._folder.read(path).decode().splitlines()
            return [json.loads(line) for line in lines if line.strip()]
        except FileNotFoundError:
            raise self._lost(f"version {number} of the table is not in its log any more") from None
        except (OSError, ValueError) as error:
            raise self._unreadable(self._folder.reason(error), path) from None

    def _token(self, number: int) -> str | None:
        """The digest of the entry of a version, which no other has; None: it is gone."""
        path = self._folder.entry(number)
        try:
            seen = self._folder.seen(path)
            if seen is None:
                return None
            if self._entry is not None and self._entry[:2] == (number, seen):
                return self._entry[2]
            token = hashlib.sha256(self._folder.read(path)).hexdigest()[:32]
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(self._folder.reason(error), path) from None
        self._entry = number, seen, token
        return token

    def _snapshot(self, number: int) -> _Snapshot:
        """The version as delta-rs has it. The last one that was asked for is kept."""
        token = self._token(number)
        known = self._known
        if known is not None and (known.number, known.token) == (number, token):
            return known
        if token is None:
            raise self._lost(f"version {number} of the table is not in its log any more")
        try:
            table = self._folder.opened(self._library, number)
        except Exception as error:  # delta-rs raises errors of several types
            raise self._unreadable(self._folder.reason(error), LOG) from None
        self._check_protocol(_Protocol.of(table.protocol()))
        self._check_metadata(table.metadata().configuration)
        with self._answers():
            columns = _columns(json.loads(table.schema().to_json())["fields"])
        partitions = table.metadata().partition_columns
        for each in columns:
            if each.name in partitions and each.type_json == '"binary"':
                raise self._refused(f"delta-rs does not read {each.name}, a partition of BINARY")
        self._known = _Snapshot(number, token, table, columns, self._folder)
        return self._known

    def _check_protocol(self, protocol: _Protocol) -> None:
        for each in sorted(protocol.features - _FEATURES):
            raise self._refused(f"the table asks its readers for {each}")

    def _check_metadata(self, configuration: Mapping[str, str]) -> None:
        mode = configuration.get("delta.columnMapping.mode") or "none"
        if mode not in ("none", "name"):
            raise self._refused(f"it has column mapping by {mode}, which is not read")

    @contextmanager
    def _answers(self) -> Iterator[None]:
        try:
            yield
        except SlackwaterError:
            raise
        except Exception as error:
            raise self._unreadable(self._folder.reason(error), LOG) from None

    def _refused(self, reason: str) -> SlackwaterError:
        return invalid_option("PATH", "CREATE SOURCE", repr(self._folder.uri), reason)

    def _lost(self, what: str) -> SlackwaterError:
        return history_lost(self._object_name, what)

    def _unreadable(self, reason: str, place: str) -> SlackwaterError:
        shown = f"the table {self._folder.uri}"
        return unreadable(self._object_name, shown, f"{place}: {reason}")


@dataclass(frozen=True, slots=True)
class _Protocol:
    """The features that a table asks of its readers."""

    features: frozenset[str]

    @staticmethod
    def of(found: Any) -> _Protocol:
        return _Protocol._asked(found.min_reader_version, found.reader_features or ())

    @staticmethod
    def of_action(found: Action) -> _Protocol:
        return _Protocol._asked(found["minReaderVersion"], found.get("readerFeatures") or ())

    @staticmethod
    def _asked(version: int, features: Sequence[str]) -> _Protocol:
        # Version 2 asks for column mapping, which may be off: the configuration tells.
        if version <= 2:
            return _Protocol(frozenset())
        more = () if version == 3 else (f"version {version} of the protocol",)
        # So does the feature of that name.
        return _Protocol(frozenset((*features, *more)) - {"columnMapping"})


@dataclass(frozen=True, slots=True)
class _DataFile:
    """A file of a table. `kept` says of its first rows which of them count; None: all rows do.

    `beyond` says it of the others.
    """

    path: str
    partition: Mapping[str, pa.Scalar]
    kept: np.ndarray | None
    beyond: bool = True

    @property
    def is_empty(self) -> bool:
        return self.kept is not None and not self.beyond and not self.kept.any()

    def without(self, other: _DataFile) -> _DataFile:
        """The same file with the rows that count here and not there."""
        mine, there = (_NO_ROWS if each.kept is None else each.kept for each in (self, other))
        length = max(len(mine), len(there))
        mask = _padded(mine, length) & ~_padded(there, length)
        return replace(self, kept=mask, beyond=False)

    def mask(self, start: int, count: int) -> pa.Array:
        """Tells of each row from `start` on whether it counts."""
        found = np.full(count, self.beyond)
        if self.kept is not None:
            part = self.kept[start : start + count]
            found[: len(part)] = part
        return pa.array(found)


_NO_ROWS = np.zeros(0, dtype=bool)


def _padded(mask: np.ndarray, length: int) -> np.ndarray:
    return np.concatenate([mask, np.ones(length - len(mask), dtype=bool)])


@dataclass(slots=True)
class _Snapshot:
    """The table in one version, as delta-rs has it."""

    number: int
    token: str
    table_of: Any
    columns: Sequence[TableColumn]
    folder: DeltaFolder
    _files: Mapping[str, Mapping[str, pa.Scalar]] | None = field(default=None, init=False)
    _kept: Mapping[str | None, np.ndarray] | None = field(default=None, init=False)

    @property
    def table(self) -> str:
        """The id of the table."""
        return str(self.table_of.metadata().id)

    @property
    def known_rows(self) -> int | None:
        """The rows of its files, deleted ones too; None: a file has no statistics."""
        found = pa.table(self.table_of.get_add_actions())
        if "num_records" not in found.column_names:
            return None
        counts = found.column("num_records")
        return None if counts.null_count else pc.sum(counts).as_py() or 0

    @property
    def files(self) -> Mapping[str, Mapping[str, pa.Scalar]]:
        """The values of its partition columns for each file, by the path that the log has."""
        if self._files is None:
            found = pa.table(self.table_of.get_add_actions())
            paths = found.column("path").to_pylist()
            if "partition" in found.column_names:
                partition = found.column("partition").combine_chunks()
                names = [each.name for each in partition.type]
                values = [partition.field(place) for place in range(len(names))]
                self._files = {
                    path: {name: each[row] for name, each in zip(names, values, strict=True)}
                    for row, path in enumerate(paths)
                }
            else:
                self._files = {path: {} for path in paths}
        return self._files

    def kept(self, place: str) -> np.ndarray | None:
        """The rows of the file in that place that count; None: all of them."""
        if self._kept is None:
            reader = pa.RecordBatchReader.from_stream(self.table_of.deletion_vectors())
            self._kept = {
                self.folder.place(uri.as_py()): np.asarray(
                    mask.values.to_numpy(zero_copy_only=False)
                )
                for batch in reader
                for uri, mask in zip(batch.column(0), batch.column(1), strict=True)
            }
        return self._kept.get(place)


def _parquet(opened: pa.NativeFile) -> pq.ParquetFile:
    return pq.ParquetFile(opened, coerce_int96_timestamp_unit="us", pre_buffer=True)


def _is_change(action: Action | None) -> bool:
    return action is not None and action.get("dataChange") is not False


def _columns(fields: Sequence[Mapping[str, Any]]) -> tuple[TableColumn, ...]:
    return tuple(
        TableColumn(
            name=each["name"],
            type_json=json.dumps(each["type"], sort_keys=True),
            nullable=bool(each["nullable"]),
            identity=_stored_name(each),
            metadata_json=json.dumps(each.get("metadata") or {}, sort_keys=True),
        )
        for each in fields
    )


def _stored_name(field: Mapping[str, Any]) -> str:
    """The name of a column or a nested field in files, which it keeps when it is renamed."""
    return str((field.get("metadata") or {}).get(_PHYSICAL_NAME) or field["name"])


def _stored_type(kind: JsonType) -> JsonType:
    """The type with the names that nested fields have in files."""
    if isinstance(kind, str):
        return kind
    inner: dict[str, Any] = {part: _stored_type(kind[part]) for part in _PARTS if part in kind}
    if kind["type"] == "struct":
        inner["fields"] = [
            {**each, "name": _stored_name(each), "type": _stored_type(each["type"])}
            for each in kind["fields"]
        ]
    return {**kind, **inner}


def _renamed(values: pa.ChunkedArray, type_json: str) -> pa.ChunkedArray:
    """The values with the names that nested fields have in the table."""
    if _PHYSICAL_NAME not in type_json:
        return values
    kind = plain_type(json.loads(type_json))
    stored = arrow_type(plain_type(_stored_type(json.loads(type_json))))
    named = arrow_type(kind)
    # Fields are found by their names in the file, and then go by their places.
    chunks = [as_type(chunk.cast(stored), named) for chunk in values.chunks]
    return pa.chunked_array(chunks, type=named)


def _committed_ms(actions: Sequence[Action]) -> int:
    info: Action = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
    return int(info.get("inCommitTimestamp") or info.get("timestamp") or 0)


def _completed(
    rows: pa.Table, columns: Sequence[TableColumn], partition: Mapping[str, pa.Scalar]
) -> pa.Table:
    """The rows with the columns that are not in their file."""
    arrays, names = [], []
    for each in columns:
        names.append(each.name)
        if each.name in partition:
            arrays.append(pa.repeat(partition[each.name], rows.num_rows))
        elif each.identity in rows.column_names:
            arrays.append(_renamed(rows.column(each.identity), each.type_json))
        else:
            arrays.append(pa.nulls(rows.num_rows))
    return pa.table(arrays, names=names)
