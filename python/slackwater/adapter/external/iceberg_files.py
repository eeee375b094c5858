"""The files of a commit to an Iceberg table: data, deletes by equality, manifests.

pyiceberg 0.12 reads deletes by equality in no way and writes none; what it has for manifests does.

Source: docs/decisions 0077.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.adapter.external.iceberg_partitions import WrittenSpec
from slackwater.storage.iceberg.partitions import Partition, split
from slackwater.storage.iceberg.schema import Fit
from slackwater.storage.iceberg.statistics import statistics_of

FILE_BYTES = 512 * 1024 * 1024
"""The bytes in memory of the rows that one file has at most."""
_GROUP_ROWS = 256 * 1024
_CODEC = "write.parquet.compression-codec"
_AVRO_CODEC = "write.avro.compression-codec"
_EQUALITY_IDS = 135


@dataclass(slots=True)
class CommitFiles:
    """The files of one commit; `table` is pyiceberg's, `snapshot_id` that of the commit."""

    library: Any
    table: Any
    snapshot_id: int
    _name: str = field(default_factory=lambda: str(uuid.uuid4()), init=False)
    _paths: list[str] = field(default_factory=list, init=False)

    def data(self, rows: pa.Table, fit: Fit, spec: WrittenSpec) -> list[Any]:
        """The data files with the rows, of each partition its own."""
        return list(self._split(rows, fit, spec, None))

    def deletes(self, keys: pa.Table, fit: Fit, spec: WrittenSpec) -> list[Any]:
        """The files that delete all older rows with these keys, where that spec has them."""
        return list(self._split(keys, fit, spec, fit.ids(keys.column_names)))

    def manifests(self, data: Sequence[Any], deletes: Sequence[Any]) -> list[Any]:
        """The manifests of files: one for each of the two kinds that there is, of one spec each."""
        kinds = ((data, self.library.manifest.ManifestWriterV2), (deletes, _deletes(self.library)))
        return [self._manifest(files, kind) for files, kind in kinds if files]

    def manifest_list(self, manifests: Sequence[Any], parent_id: int | None) -> str:
        """The path of the list with these manifests."""
        path = self._path("metadata", f"snap-{self.snapshot_id}-0-{self._name}.avro")
        with self.library.manifest.write_manifest_list(
            format_version=2,
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
                file = self._written(piece, fit, partition, equality_ids)
                file.spec_id = spec.spec_id
                yield file

    def _written(
        self, rows: pa.Table, fit: Fit, partition: Partition, equality_ids: list[int] | None
    ) -> Any:
        library = self.library
        content = library.manifest.DataFileContent
        path = self._path("data", f"{self._name}-{len(self._paths)}.parquet")
        output = self.table.io.new_output(path)
        codec = self.table.metadata.properties.get(_CODEC, "zstd")
        with output.create() as stream:
            writer = pq.ParquetWriter(
                stream,
                fit.schema,
                compression="none" if codec == "uncompressed" else codec,
                store_decimal_as_integer=True,
            )
            with writer:
                writer.write_table(rows, row_group_size=_GROUP_ROWS)
        found = statistics_of(writer.writer.metadata, fit.leaves)
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

    def _manifest(self, files: Sequence[Any], kind: Any) -> Any:
        manifest = self.library.manifest
        metadata = self.table.metadata
        path = self._path("metadata", f"{self._name}-m{len(self._paths)}.avro")
        writer = kind(
            metadata.specs()[files[0].spec_id],
            metadata.schema(),
            self.table.io.new_output(path),
            self.snapshot_id,
            self._avro_codec,
        )
        with writer:
            for each in files:
                writer.add_entry(
                    manifest.ManifestEntry.from_args(
                        status=manifest.ManifestEntryStatus.ADDED,
                        snapshot_id=self.snapshot_id,
                        sequence_number=None,
                        file_sequence_number=None,
                        data_file=each,
                    )
                )
        return writer.to_manifest_file()


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
