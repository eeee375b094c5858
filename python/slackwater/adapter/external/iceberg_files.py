"""The files of a commit to an Iceberg table: data, deletes by equality, manifests.

pyiceberg 0.12 reads deletes by equality in no way and writes none; what it has for manifests does.

Source: docs/decisions 0077.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.adapter.external.iceberg_listing import Listed
from slackwater.adapter.external.iceberg_partitions import WrittenSpec
from slackwater.storage.iceberg.partitions import Partition, split
from slackwater.storage.iceberg.schema import Fit, Leaf, file_leaves
from slackwater.storage.iceberg.statistics import statistics_of
from slackwater.storage.lake.table import Written, telling, unheard

FILE_BYTES = 512 * 1024 * 1024
"""The bytes in memory of the rows that one file has at most."""
_GROUP_ROWS = 256 * 1024
_GROUP_BYTES = 64 * 1024 * 1024
_CODEC = "write.parquet.compression-codec"
_AVRO_CODEC = "write.avro.compression-codec"
_EQUALITY_IDS = 135


@dataclass(slots=True)
class CommitFiles:
    """The files of one commit; `table` is pyiceberg's, `snapshot_id` that of the commit.

    `written` is told of the rows of `data`.
    """

    library: Any
    table: Any
    snapshot_id: int
    written: Written = unheard
    _name: str = field(default_factory=lambda: str(uuid.uuid4()), init=False)
    _paths: list[str] = field(default_factory=list, init=False)

    def data(self, rows: pa.Table, fit: Fit, spec: WrittenSpec) -> list[Any]:
        """The data files with the rows, of each partition its own."""
        return list(self._split(rows, fit, spec, None))

    def deletes(self, keys: pa.Table, fit: Fit, spec: WrittenSpec) -> list[Any]:
        """The files that delete all older rows with these keys, where that spec has them."""
        return list(self._split(keys, fit, spec, fit.ids(keys.column_names)))

    def rewritten(
        self, rows: Iterable[pa.Table], instead: Any, equality_ids: Sequence[int] = ()
    ) -> list[Any]:
        """The data file with these rows in the partition of another; none when there are none.

        The columns of `rows` have the ids of their fields. With ids of a key it is a file of
        deletes. Raises `Misfit` when columns have no ids.
        """
        groups = _grouped(rows)
        first = next(groups, None)
        if first is None:
            return []
        partition = tuple(instead.partition[place] for place in range(len(instead.partition)))
        several = itertools.chain([first], groups)
        leaves, ids = file_leaves(first.schema), list(equality_ids) or None
        file = self._file(several, leaves, partition, ids)
        file.spec_id = instead.spec_id
        return [file]

    def manifests(self, files: Iterable[Any], sequences: Mapping[str, int]) -> list[Any]:
        """The manifests of new files: one for each kind and spec.

        Those with a number of `sequences`, by their paths, count as files of that commit.
        """
        return [
            self._manifest(
                spec_id,
                is_data,
                [self._added(each, sequences.get(each.file_path)) for each in several],
            )
            for (spec_id, is_data), several in self._by_manifest(files).items()
        ]

    def without(self, manifests: Iterable[Any], removed: Sequence[Listed]) -> list[Any]:
        """The manifests of the table without these files, which are told as gone.

        Manifests that have told so before are left out.
        """
        gone = {each.file.path for each in removed}
        touched = {each.manifest for each in removed}
        kept: list[Any] = []
        changed: dict[tuple[int, bool], list[Any]] = {}
        for manifest in manifests:
            if not has_files(manifest):
                continue
            if manifest.manifest_path not in touched:
                kept.append(manifest)
                continue
            is_data = manifest.content == self.library.manifest.ManifestContent.DATA
            changed.setdefault((manifest.partition_spec_id, is_data), []).extend(
                self._gone(each) if each.data_file.file_path in gone else self._existing(each)
                for each in manifest.fetch_manifest_entry(self.table.io)
            )
        return [*(self._manifest(*key, several) for key, several in changed.items()), *kept]

    def manifest_list(self, manifests: Sequence[Any], parent_id: int | None) -> str:
        """The path of the list with these manifests."""
        path = self._path("metadata", f"snap-{self.snapshot_id}-0-{self._name}.avro")
        with self.library.manifest.write_manifest_list(
            format_version=self.table.metadata.format_version,
            output_file=self.table.io.new_output(path),
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=parent_id,
            sequence_number=self.table.metadata.next_sequence_number(),
            avro_compression=self._avro_codec,
        ) as writer:
            writer.add_manifests(list(manifests))
        return path

    def remove(self) -> None:
        """Removes all of them, as far as that succeeds: the commit has not happened."""
        for path in self._paths:
            with suppress(OSError):
                self.table.io.delete(path)
        self._paths.clear()

    def sync(self, *more: str) -> None:
        """Makes the files, and others, durable where they are on a local disk."""
        synced(local for each in (*self._paths, *more) if (local := local_file(each)))

    @property
    def _avro_codec(self) -> str:
        return str(self.table.metadata.properties.get(_AVRO_CODEC, "gzip"))

    def _path(self, kind: str, name: str) -> str:
        provider = self.table.location_provider()
        made: str = (
            provider.new_data_location(name)
            if kind == "data"
            else provider.new_metadata_location(name)
        )
        self._paths.append(made)
        return made

    def _split(
        self, rows: pa.Table, fit: Fit, spec: WrittenSpec, equality_ids: list[int] | None
    ) -> Iterator[Any]:
        for partition, part in split(rows.cast(fit.schema), spec.columns):
            for piece in pieces(part, FILE_BYTES):
                groups = _row_groups(piece)
                told = groups if equality_ids is not None else telling(groups, self.written)
                file = self._file(told, fit.leaves, partition, equality_ids)
                file.spec_id = spec.spec_id
                yield file

    def _file(
        self,
        rows: Iterable[pa.Table],
        leaves: Sequence[Leaf],
        partition: Partition,
        equality_ids: list[int] | None,
    ) -> Any:
        """The file with these rows, of which there are some; their schemas are the same."""
        library = self.library
        content = library.manifest.DataFileContent
        path = self._path("data", f"{self._name}-{len(self._paths)}.parquet")
        output = self.table.io.new_output(path)
        codec = self.table.metadata.properties.get(_CODEC, "zstd")
        several = iter(rows)
        first = next(several)
        with output.create() as stream:
            writer = pq.ParquetWriter(
                stream,
                first.schema,
                compression="none" if codec == "uncompressed" else codec,
                store_decimal_as_integer=True,
            )
            with writer:
                for each in itertools.chain([first], several):
                    writer.write_table(each, row_group_size=_GROUP_ROWS)
        found = statistics_of(writer.writer.metadata, leaves)
        return library.manifest.DataFile.from_args(
            content=content.DATA if equality_ids is None else content.EQUALITY_DELETES,
            file_path=path,
            file_format=library.manifest.FileFormat.PARQUET,
            partition=library.typedef.Record(*partition),
            record_count=found.rows,
            file_size_in_bytes=len(output),
            column_sizes=found.sizes,
            value_counts=found.values,
            null_value_counts=found.nulls,
            nan_value_counts=None,
            lower_bounds=found.lower,
            upper_bounds=found.upper,
            key_metadata=None,
            split_offsets=sorted(found.offsets),
            equality_ids=equality_ids,
            sort_order_id=None,
        )

    def _by_manifest(self, files: Iterable[Any]) -> dict[tuple[int, bool], list[Any]]:
        found: dict[tuple[int, bool], list[Any]] = {}
        data = self.library.manifest.DataFileContent.DATA
        for each in files:
            found.setdefault((each.spec_id, each.content == data), []).append(each)
        return found

    def _manifest(self, spec_id: int, is_data: bool, entries: Sequence[Any]) -> Any:
        metadata = self.table.metadata
        path = self._path("metadata", f"{self._name}-m{len(self._paths)}.avro")
        kinds = self.library.manifest
        written = kinds.ManifestWriterV1 if metadata.format_version == 1 else kinds.ManifestWriterV2
        kind = written if is_data else _deletes(self.library)
        writer = kind(
            metadata.specs()[spec_id],
            metadata.schema(),
            self.table.io.new_output(path),
            self.snapshot_id,
            self._avro_codec,
        )
        with writer:
            for each in entries:
                writer.add_entry(each)
        return writer.to_manifest_file()

    def _added(self, file: Any, sequence: int | None) -> Any:
        return self.library.manifest.ManifestEntry.from_args(
            status=self.library.manifest.ManifestEntryStatus.ADDED,
            snapshot_id=self.snapshot_id,
            sequence_number=sequence,
            file_sequence_number=None,
            data_file=file,
        )

    def _existing(self, entry: Any) -> Any:
        return self._with_status(entry, "EXISTING", entry.snapshot_id)

    def _gone(self, entry: Any) -> Any:
        return self._with_status(entry, "DELETED", self.snapshot_id)

    def _with_status(self, entry: Any, status: str, snapshot_id: int) -> Any:
        return self.library.manifest.ManifestEntry.from_args(
            status=self.library.manifest.ManifestEntryStatus[status],
            snapshot_id=snapshot_id,
            sequence_number=entry.sequence_number,
            file_sequence_number=entry.file_sequence_number,
            data_file=entry.data_file,
        )


def _row_groups(rows: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, rows.num_rows, _GROUP_ROWS):
        yield rows.slice(start, _GROUP_ROWS)


def _grouped(rows: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows in groups of a file, of which there may be fewer than in what they come from."""
    held: list[pa.Table] = []
    for each in rows:
        held.append(each)
        if (
            sum(map(len, held)) >= _GROUP_ROWS
            or sum(group.nbytes for group in held) >= _GROUP_BYTES
        ):
            yield pa.concat_tables(held)
            held.clear()
    if held:
        yield pa.concat_tables(held)


def has_files(manifest: Any) -> bool:
    """Whether files of the table are in a manifest."""
    return bool(manifest.has_added_files() or manifest.has_existing_files())


def local_file(location: str) -> str | None:
    """The path of a file on a local disk; None: it is elsewhere."""
    parts = urlsplit(location)
    return unquote(parts.path) if parts.scheme == "file" else location if not parts.scheme else None


def synced(paths: Iterable[str]) -> None:
    """Makes files durable, and their names. Raises OSError."""
    files = list(paths)
    for path in (*files, *sorted({os.path.dirname(each) for each in files})):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def pieces(rows: pa.Table, most_bytes: int) -> Iterator[pa.Table]:
    """The rows in pieces of about equal numbers of them, of so many bytes at most on average."""
    if not rows.num_rows:
        return
    count = min(rows.num_rows, -(-rows.nbytes // most_bytes) or 1)
    size = -(-rows.num_rows // count)
    for start in range(0, rows.num_rows, size):
        yield rows.slice(start, size)


def _deletes(library: Any) -> Any:
    """The writer of manifests with files of deletes.

    The ids of the columns of a key have to be of 32 bits there: Iceberg's own reader takes no
    others, and pyiceberg writes 64.
    """
    types, manifest = library.types, library.manifest
    writer: Any = manifest.ManifestWriterV2

    class Deletes(writer):  # type: ignore[misc]
        def content(self) -> Any:
            return manifest.ManifestContent.DELETES

        @property
        def _meta(self) -> dict[str, str]:
            return {**super()._meta, "content": "deletes"}

        def _with_partition(self, format_version: Any) -> Any:
            partition = self._spec.partition_type(self._schema)
            made = manifest.data_file_with_partition(partition, format_version)
            fields = [_with_short_ids(types, each) for each in made.fields]
            return manifest.manifest_entry_schema_with_data_file(
                format_version, types.StructType(*fields)
            )

    return Deletes


def _with_short_ids(types: Any, each: Any) -> Any:
    if each.field_id != _EQUALITY_IDS:
        return each
    kind = types.ListType(each.field_type.element_id, types.IntegerType(), element_required=True)
    return types.NestedField(each.field_id, each.name, kind, required=False)
