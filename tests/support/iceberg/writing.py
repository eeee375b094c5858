"""Iceberg's own writers of rows and of deletes, over a table of the JVM that tests share."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.iceberg.java import Java

from slackwater.adapter.external.iceberg_history import IcebergOrigin
from slackwater.storage.access import AwsAccess, IcebergAccess
from slackwater.storage.lake.config import IcebergPlace
from slackwater.storage.lake.history import TableColumn

Row = Mapping[str, Any]


@contextmanager
def written_by_java(
    java: Java, access: IcebergAccess, identifier: Sequence[str]
) -> Iterator[JavaTable]:
    """A table of a catalog in SQLite."""
    database = access.url.removeprefix("sqlite:///")
    named = _Named(tuple(identifier))
    with java.table_of_database(database, access.warehouse or "", named) as table:
        yield JavaTable(java, table)


@dataclass(frozen=True)
class _Named:
    identifier: tuple[str, ...]


def an_origin(
    access: IcebergAccess,
    table: str = "t",
    aws: AwsAccess | None = None,
    columns: Sequence[TableColumn] = (),
) -> IcebergOrigin:
    """The table of a source with these columns, in the namespace n."""
    place = IcebergPlace("n", table)
    return IcebergOrigin(access, aws, place, "the source", "the connection", columns)


@dataclass(frozen=True)
class JavaTable:
    """A loaded table of Java's. Values are texts, numbers of 32 bits, and mappings of these."""

    java: Java
    table: Any
    file_format: str = "PARQUET"

    def change(
        self,
        rows: Sequence[Row] = (),
        keys: Sequence[Row] = (),
        positions: Sequence[tuple[str, int]] = (),
        taken_back: int = 0,
    ) -> None:
        """Commits rows, deletes by values of columns, and deletes by positions, at once.

        So many of the rows are deleted again by their positions.
        """
        delta = self.table.newRowDelta()
        files = self._data(rows)
        for file in files:
            delta.addRows(file)
        own = [
            (file.location(), position) for file in files for position in range(file.recordCount())
        ]
        known = [*files, *(task.file() for task in self._tasks())]
        deleted = self._positions(known, [*positions, *own[:taken_back]])
        for file in (*self._equal(keys), *deleted):
            delta.addDeletes(file)
        delta.commit()

    def compact(self) -> None:
        """Writes all rows anew, in a commit that says so. Deletes go with the files."""
        tasks = self._tasks()
        if not tasks:
            return
        found = self._jvm.org.apache.iceberg.data.IcebergGenerics.read(self.table).build()
        current = self.table.currentSnapshot().snapshotId()
        rewrite = self.table.newRewrite().validateFromSnapshot(current)
        for task in tasks:
            rewrite.deleteFile(task.file())
        for file in self._written(list(_each(found)), None, self._factory().newDataWriter):
            rewrite.addFile(file.toDataFile())
        found.close()
        rewrite.commit()

    def places(self) -> list[tuple[str, int]]:
        """All rows that were written: their files, and positions in them."""
        return [
            (task.file().location(), position)
            for task in self._tasks()
            for position in range(task.file().recordCount())
        ]

    @property
    def _jvm(self) -> Any:
        return self.java.gateway.jvm

    def _tasks(self) -> list[Any]:
        planned = self.table.newScan().planFiles()
        found = list(_each(planned))
        planned.close()
        return found

    def _data(self, rows: Sequence[Row]) -> list[Any]:
        records = [self._record(self.table.schema(), row) for row in rows]
        written = self._written(records, None, self._factory().newDataWriter)
        return [each.toDataFile() for each in written]

    def _equal(self, keys: Sequence[Row]) -> list[Any]:
        if not keys:
            return []
        named = list(_paths(keys[0]))
        names = self._jvm.java.util.ArrayList()
        for name in named:
            names.add(name)
        schema = self.table.schema().select(names)
        ids = [schema.findField(name).fieldId() for name in named]
        records = [self._record(schema, row) for row in keys]
        # The partition of a key is told by its columns, which have to be among those of the key.
        factory = self._factory(ids, schema)
        written = self._written(records, schema, factory.newEqDeleteWriter)
        return [each.toDeleteFile() for each in written]

    def _positions(self, known: Sequence[Any], positions: Sequence[tuple[str, int]]) -> list[Any]:
        """A file for each partition; within it positions ascend."""
        files = {file.location(): file for file in known}
        by_partition: dict[tuple[int, str], list[tuple[str, int]]] = {}
        for path, position in sorted(set(positions)):
            scope = (files[path].specId(), files[path].partition().toString())
            by_partition.setdefault(scope, []).append((path, position))
        found = []
        for several in by_partition.values():
            of = files[several[0][0]]
            factory = self._factory(spec=self.table.specs().get(of.specId()))
            # Then bounds tell the data file where there is one alone.
            factory.set("write.metadata.metrics.default", "full")
            writer = factory.newPosDeleteWriter(self._output(), self._format, of.partition())
            for path, position in several:
                delete = self._jvm.org.apache.iceberg.deletes.PositionDelete.create()
                writer.write(delete.set(path, position, None))
            writer.close()
            found.append(writer.toDeleteFile())
        return found

    def _written(
        self, records: Sequence[Any], schema: Any, opened: Callable[..., Any]
    ) -> list[Any]:
        """The writers of files with the records, one for each partition; they are closed."""
        spec = self.table.spec()
        whole = self.table.schema()
        writers: dict[str, Any] = {}
        for record in records:
            partition = None
            if spec.isPartitioned():
                partition = self._jvm.org.apache.iceberg.PartitionKey(spec, schema or whole)
                wrapper = self._jvm.org.apache.iceberg.data.InternalRecordWrapper(
                    (schema or whole).asStruct()
                )
                partition.partition(wrapper.wrap(record))
            named = "" if partition is None else partition.toString()
            if named not in writers:
                writers[named] = opened(self._output(), self._format, partition)
            writers[named].write(record)
        for writer in writers.values():
            writer.close()
        return list(writers.values())

    def _record(self, schema: Any, row: Row) -> Any:
        record = self._jvm.org.apache.iceberg.data.GenericRecord.create(schema)
        for name, value in row.items():
            if isinstance(value, Mapping):
                value = self._record(schema.findField(name).type().asStructType(), value)
            record.setField(name, value)
        return record

    def _factory(self, ids: Sequence[int] = (), schema: Any = None, spec: Any = None) -> Any:
        chosen = None
        if ids:
            chosen = self.java.gateway.new_array(self._jvm.int, len(ids))
            for place, each in enumerate(ids):
                chosen[place] = each
        return self._jvm.org.apache.iceberg.data.GenericAppenderFactory(
            self.table.schema(), spec or self.table.spec(), chosen, schema, None
        )

    def _output(self) -> Any:
        name = self.table.locationProvider().newDataLocation(f"{uuid.uuid4()}.parquet")
        made = self.table.io().newOutputFile(name)
        return self._jvm.org.apache.iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(made)

    @property
    def _format(self) -> Any:
        return self._jvm.org.apache.iceberg.FileFormat.fromString(self.file_format)


def _paths(row: Row) -> Iterator[str]:
    """The names of the values, within those of the structs that have them."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in _paths(value))
        else:
            yield name


def _each(found: Any) -> Iterable[Any]:
    iterator = found.iterator()
    while iterator.hasNext():
        yield iterator.next()
