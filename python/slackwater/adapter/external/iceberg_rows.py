"""The rows of data files of an Iceberg table, without those that files of deletes delete.

pyiceberg 0.12 does not apply deletes by equality: what is deleted is found here.

Source: docs/decisions 0080.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.repr.relation import DIFF_FIELD
from slackwater.storage.iceberg.bounds import Keys
from slackwater.storage.iceberg.columns import path_to
from slackwater.storage.iceberg.equality import matches
from slackwater.storage.iceberg.live_files import DataFile, DeleteFile, FileChange
from slackwater.storage.iceberg.projection import Projection, with_ids
from slackwater.storage.iceberg.schema import Json

NAME_MAPPING = "schema.name-mapping.default"
_KEPT_BYTES = 64 * 1024 * 1024
_PATH, _POSITION = "file_path", "pos"

Positions = Mapping[str, Any]
"""Arrays of positions, by the paths of the files that have them."""


@dataclass(slots=True)
class KeptDeletes:
    """Keeps what files of deletes have: of the last that were read, up to a number of bytes."""

    limit_bytes: int = _KEPT_BYTES
    _held: OrderedDict[tuple[Any, ...], tuple[Any, int]] = field(
        default_factory=OrderedDict, init=False
    )
    _bytes: int = field(default=0, init=False)

    def get(self, key: tuple[Any, ...], read: Callable[[], tuple[Any, int]]) -> Any:
        """Gives what is kept under the key, or what `read` gives, with its size."""
        if key in self._held:
            self._held.move_to_end(key)
            return self._held[key][0]
        found, size = read()
        self._held[key] = (found, size)
        self._bytes += size
        while self._bytes > self.limit_bytes and len(self._held) > 1:
            _, (_, freed) = self._held.popitem(last=False)
            self._bytes -= freed
        return found


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of a table as pyiceberg has it, read with the fields of one of its schemas.

    Memory is taken by a group of rows at a time, and by what the files of deletes have. Each method
    raises `Unreadable`, OSError and Arrow's errors.
    """

    table: Any
    fields: Sequence[Json]
    kept: KeptDeletes

    def changed(self, change: FileChange) -> Iterator[pa.Table]:
        """The rows of a file that come or go, with ``__diff``, piece by piece."""
        if not self._may_change(change):
            return
        with self._opened(change.file.path) as file:
            projection = self._projection(file, self.fields, change.file)
            for rows in self._groups(file, change.file):
                diffs = rows.diffs(change)
                if not diffs.any():
                    continue
                found = projection.rows(file.read_row_group(rows.group, projection.names))
                found = found.append_column(DIFF_FIELD, pa.array(diffs, pa.int64()))
                yield found if diffs.all() else found.filter(pa.array(diffs != 0))

    def has(self, file: DataFile, deletes: Sequence[DeleteFile], keys: Keys) -> bool:
        """Whether the file has rows with one of the keys that these deletes leave."""
        with self._opened(file.path) as found:
            groups = self._groups(found, file)
            return any((each.with_keys(keys) & ~each.deleted(deletes)).any() for each in groups)

    def remaining(
        self, file: DataFile, deletes: Sequence[DeleteFile], keys: Keys | None = None
    ) -> Iterator[pa.Table]:
        """The rows that these deletes and the keys leave, with the columns of the file."""
        with self._opened(file.path) as found:
            schema = self._numbered(found)
            for group in self._groups(found, file):
                gone = group.deleted(deletes)
                if keys is not None:
                    gone |= group.with_keys(keys)
                if gone.all():
                    continue
                rows = found.read_row_group(group.group).cast(schema)
                yield rows.filter(pa.array(~gone)) if gone.any() else rows

    def distinct_keys(self, deletes: Sequence[DeleteFile]) -> pa.Table | None:
        """The values of files of deletes, each once; None: of these it is not known what is equal,
        or the files have other columns."""
        found: list[pa.Table] = []
        for each in deletes:
            with self._opened(each.path) as file:
                found.append(file.read().cast(self._numbered(file)))
        schema = found[0].schema.remove_metadata()
        if any(pa.types.is_nested(kind) or pa.types.is_floating(kind) for kind in schema.types):
            return None
        if len(schema) != len(deletes[0].equality_ids) or any(
            not each.schema.remove_metadata().equals(schema, check_metadata=True) for each in found
        ):
            return None
        names = schema.names
        distinct = pa.concat_tables(found).group_by(names, use_threads=False).aggregate([])
        return distinct.select(names).cast(schema)

    def schema(self, file: DataFile) -> pa.Schema:
        """The columns of a file, with the ids of their fields."""
        with self._opened(file.path) as found:
            return self._numbered(found)

    def positions(self, delete: DeleteFile) -> Positions:
        """The positions that a file deletes."""

        def read() -> tuple[Positions, int]:
            with self._opened(delete.path) as file:
                found = file.read([_PATH, _POSITION])
            return _by_path(found), found.nbytes

        return self.kept.get((delete.path,), read)  # type: ignore[no-any-return]

    def values(self, delete: DeleteFile) -> pa.Table:
        """The values that a file deletes by, under the names of their columns."""
        return self.keys(delete, [_only(path) for path in self.key_fields(delete.equality_ids)])

    def keys(self, delete: DeleteFile, fields: Sequence[Json]) -> pa.Table:
        """The values of these fields, whose rows a file deletes."""

        def read() -> tuple[pa.Table, int]:
            with self._opened(delete.path) as file:
                projection = self._projection(file, fields, None)
                found = projection.rows(file.read(projection.names))
            return found, found.nbytes

        wanted = json.dumps(fields)
        return self.kept.get((delete.path, wanted), read)

    def key_fields(self, ids: Iterable[int]) -> list[tuple[Json, ...]]:
        """The fields with these ids behind those that they are within.

        A field that the table has no more has the type that it had last.
        """
        older = sorted(self.table.metadata.schemas, key=lambda each: -each.schema_id)
        found = []
        for field_id in ids:
            path = path_to(self.fields, field_id)
            for schema in older:
                path = path or path_to(schema_json(schema)["fields"], field_id)
            found.append(path)
        return found

    def _may_change(self, change: FileChange) -> bool:
        """Whether it is worth opening the file: positions are often those of others."""
        if change.before is None or change.after is None:
            return True
        changed = set(change.before) ^ set(change.after)
        return any(
            each.equality_ids or change.file.path in self.positions(each) for each in changed
        )

    def projected(
        self, file: pq.ParquetFile, group: int, fields: Sequence[Json], of: DataFile
    ) -> pa.Table:
        """Some fields of a group of rows."""
        projection = self._projection(file, fields, of)
        return projection.rows(file.read_row_group(group, projection.names))

    def _groups(self, file: pq.ParquetFile, of: DataFile) -> Iterator[_GroupOfRows]:
        start = 0
        for group in range(file.num_row_groups):
            rows = _GroupOfRows(self, file, of, group, start)
            start += rows.count
            yield rows

    def _numbered(self, file: pq.ParquetFile) -> pa.Schema:
        text = self.table.metadata.properties.get(NAME_MAPPING)
        return with_ids(file.schema_arrow, None if text is None else json.loads(text))

    def _projection(
        self, file: pq.ParquetFile, fields: Sequence[Json], of: DataFile | None
    ) -> Projection:
        return Projection(fields, self._numbered(file), self._constants(of))

    def _constants(self, file: DataFile | None) -> Mapping[int, Any]:
        """The values of a file's partition that are those of its fields."""
        if file is None:
            return {}
        spec_id, values = file.scope
        fields = self.table.metadata.specs()[spec_id].fields
        return {
            each.source_id: value
            for each, value in zip(fields, values, strict=True)
            if str(each.transform) == "identity"
        }

    @contextmanager
    def _opened(self, path: str) -> Iterator[pq.ParquetFile]:
        with (
            self.table.io.new_input(path).open() as stream,
            pq.ParquetFile(stream, coerce_int96_timestamp_unit="us", pre_buffer=True) as file,
        ):
            yield file


@dataclass(frozen=True, slots=True)
class _GroupOfRows:
    """A group of rows of an open data file, which begins at the position `start`."""

    files: TableFiles
    file: pq.ParquetFile
    of: DataFile
    group: int
    start: int

    @property
    def count(self) -> int:
        found: int = self.file.metadata.row_group(self.group).num_rows
        return found

    def diffs(self, change: FileChange) -> Any:
        """Counts how often each row comes: -1, 0 or 1."""
        before, after = set(change.before or ()), set(change.after or ())
        shared = before & after
        gone_before, gone_after = self.deleted(before - shared), self.deleted(after - shared)
        was, is_there = change.before is not None, change.after is not None
        diffs = (is_there & ~gone_after).astype(np.int64) - (was & ~gone_before)
        # Most groups have no row that a new delete names: then older ones need not be read.
        return diffs * ~self.deleted(shared) if diffs.any() else diffs

    def with_keys(self, keys: Keys) -> Any:
        """Finds the rows that have one of the keys."""
        return self._equal(keys.ids, [keys.values])

    def deleted(self, deletes: Iterable[DeleteFile]) -> Any:
        """Finds the rows that these files delete."""
        found = np.zeros(self.count, np.bool_)
        by_ids: dict[tuple[int, ...], list[DeleteFile]] = {}
        for each in deletes:
            if each.equality_ids:
                by_ids.setdefault(each.equality_ids, []).append(each)
                continue
            positions = self.files.positions(each).get(self.of.path)
            if positions is not None:
                within = positions[
                    (positions >= self.start) & (positions < self.start + self.count)
                ]
                found[within - self.start] = True
        for ids, several in by_ids.items():
            fields = [_only(path) for path in self.files.key_fields(ids)]
            found |= self._equal(ids, [self.files.keys(each, fields) for each in several])
        return found

    def _equal(self, ids: Sequence[int], several: Sequence[pa.Table]) -> Any:
        paths = self.files.key_fields(ids)
        fields = [_only(path) for path in paths]
        keys = pa.concat_tables(several)
        rows = self.files.projected(self.file, self.group, fields, self.of)
        return matches(_leaves(rows, paths), _leaves(keys, paths))


def schema_json(schema: Any) -> Json:
    """A schema of pyiceberg's in the JSON of Iceberg."""
    found: Json = json.loads(schema.model_dump_json())
    return found


def _only(path: Sequence[Json]) -> Json:
    """The outermost field of the path with nothing but the path in it; each may be NULL."""
    found = path[-1]
    for each in reversed(path[:-1]):
        found = {**each, "type": {"type": "struct", "fields": [{**found, "required": False}]}}
    return {**found, "required": False}


def _leaves(rows: pa.Table, paths: Sequence[Sequence[Json]]) -> pa.Table:
    """The innermost values of each column, and whether what they are within is NULL."""
    columns = []
    for column, path in zip(rows.columns, paths, strict=True):
        for _ in path[1:]:
            columns.append(pc.is_null(column))
            column = pc.struct_field(column, [0])
        columns.append(column)
    return pa.Table.from_arrays(columns, [str(place) for place in range(len(columns))])


def _by_path(found: pa.Table) -> Positions:
    paths = found.column(_PATH).combine_chunks().cast(pa.string()).dictionary_encode()
    codes = paths.indices.to_numpy(zero_copy_only=False)
    positions = found.column(_POSITION).to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(paths.dictionary)))
    pieces = np.split(positions[order], ends[:-1]) if len(ends) else []
    return dict(zip(paths.dictionary.to_pylist(), pieces, strict=True))
