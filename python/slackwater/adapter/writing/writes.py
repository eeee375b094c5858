"""Writes: from the rows or files that Spark produced to one commit of the group committer.

Inside a transaction block rows are kept until COMMIT and then committed together, at one
timestamp or not at all. Source: spec coordinator 1.6, 1.9, 3.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.environment import Environment
from slackwater.adapter.reading.reads import Reads
from slackwater.adapter.sessions import Session
from slackwater.adapter.transactions import add_write, check_outside_block, in_block
from slackwater.adapter.writing.buffered import BufferedWrite
from slackwater.adapter.writing.group_commit import PartsAt, Rows, Write, at_time, count_changes
from slackwater.persist.blobs import uniform_file
from slackwater.persist.client import WriteResult
from slackwater.persist.parts import FileBody, NewPart, Uniform
from slackwater.repr.errors import user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import DIFF_COLUMN, RelationDesc


class Writes:
    """Commits writes to tables. Thread-safe."""

    def __init__(self, env: Environment, reads: Reads) -> None:
        self._env = env
        self._reads = reads

    def directory(self, global_id: GlobalId, write_id: str) -> str:
        """Where executors put the files of a write."""
        return self._env.persist.staging_directory(self._shard(self._table(global_id)), write_id)

    def write(self, session: Session, body: Mapping[str, Any]) -> dict[str, int]:
        """The write of protocol section 2: answers once it is durable and applied.

        Raises SLACKWATER_READ_ONLY_RELATION, SLACKWATER_NOT_NULL_VIOLATION, SLACKWATER_FENCED,
        SLACKWATER_METASTORE_UNAVAILABLE, SLACKWATER_DEPENDENCY_DROPPED, and what the state of
        the session's transaction forbids. Repeating a `write_id` has one effect.
        """
        write_id: str = body["write_id"]
        hold: str | None = body.get("hold")
        try:
            if hold is not None and not self._reads.is_open(hold):
                return self._of_an_earlier_coordinator(write_id)
            item = self._table(GlobalId(body["table"]))
            buffered = self._buffered(item, body)
            if in_block(session.transaction):
                if hold is not None or body["mode"] != "append":
                    check_outside_block(session.transaction, "A write that reads or replaces rows")
                session.transaction = add_write(session.transaction, buffered)
                return {"timestamp": 0, "inserted": buffered.inserted, "deleted": 0}
            if body["mode"] == "overwrite" and hold is None:
                hold = self._reads.lock_for_write(session, item.id)
            return _answer(self.commit((buffered,), write_id, hold))
        finally:
            if hold is not None:
                self._reads.release(hold)

    def commit(
        self, writes: Sequence[BufferedWrite], write_id: str, owner: str | None
    ) -> WriteResult:
        """Commits all `writes` at one timestamp."""
        appends: dict[int, Rows] = {}
        for write in writes:
            item = self._env.state.items.get(write.table)
            if item is None or item.shard_id is None:
                raise user_error("SLACKWATER_DEPENDENCY_DROPPED", objectName=write.name)
            before = appends.get(item.shard_id)
            appends[item.shard_id] = (
                write.rows if before is None else self._both(item.shard_id, before, write.rows)
            )
        future = self._env.committer.submit(
            Write(
                write_id=write_id,
                appends=appends,
                inserted=sum(write.inserted for write in writes),
                deleted=sum(write.deleted for write in writes),
                owner=owner,
            )
        )
        return future.result()

    def _both(self, shard_id: int, first: Rows, second: Rows) -> Rows:
        if isinstance(first, pa.Table) and isinstance(second, pa.Table):
            return pa.concat_tables([first, second])
        each = [self._parts(shard_id, rows) for rows in (first, second)]
        return lambda time: tuple(part for parts_at in each for part in parts_at(time))

    def _parts(self, shard_id: int, rows: Rows) -> PartsAt:
        if not isinstance(rows, pa.Table):
            return rows
        if not rows.num_rows:
            return lambda _: ()
        return lambda time: self._env.persist.new_parts(shard_id, at_time(rows, time))

    def _of_an_earlier_coordinator(self, write_id: str) -> dict[str, int]:
        """A write whose reads nobody protects any more: done already, or refused."""
        earlier = self._env.persist.written(write_id)
        if earlier is None:
            raise user_error("SLACKWATER_CONCURRENT_CHANGE", objectName="What this statement read")
        return _answer(earlier)

    def _table(self, global_id: GlobalId) -> CatalogItem:
        item = self._env.item(global_id)
        if item.kind is not ItemKind.TABLE:
            raise user_error(
                "SLACKWATER_READ_ONLY_RELATION",
                objectName=item.full_name,
                kind=item.kind.value,
            )
        return item

    @staticmethod
    def _shard(item: CatalogItem) -> int:
        if item.shard_id is None:
            raise AssertionError(f"the table {item.id} has no shard")
        return item.shard_id

    def _buffered(self, item: CatalogItem, body: Mapping[str, Any]) -> BufferedWrite:
        shard_id = self._shard(item)
        desc = item.desc
        if desc is None:
            raise AssertionError(f"the table {item.id} has no columns")
        mode: str = body["mode"]
        rows = pa.concat_tables(
            [
                _with_diff(pa.table([]), desc, item.full_name),
                *(
                    _with_diff(_decode(text), desc, item.full_name)
                    for text in body.get("inline") or ()
                ),
            ]
        )
        files: list[tuple[FileBody, int, int]] = []
        self._env.persist.blobs.settle(entry["uri"] for entry in body.get("files") or ())
        for entry in body.get("files") or ():
            if mode == "diff":
                files.extend(self._split(shard_id, entry))
            else:
                files.append((_file(entry), 1, int(entry["rows"])))
        inserted, deleted = count_changes(rows)
        inserted += sum(count for _, diff, count in files if diff > 0)
        deleted += sum(count for _, diff, count in files if diff < 0)
        if not files and mode != "overwrite":
            return BufferedWrite(item.id, item.full_name, rows, inserted, deleted)
        inline = self._parts(shard_id, rows)

        def parts_at(time: Timestamp) -> tuple[NewPart, ...]:
            removed = self._env.persist.negation(shard_id, time) if mode == "overwrite" else ()
            added = (_uniform(body, diff, count, time) for body, diff, count in files)
            return (*removed, *inline(time), *added)

        return BufferedWrite(item.id, item.full_name, parts_at, inserted, deleted)

    def _split(self, shard_id: int, entry: Mapping[str, Any]) -> list[tuple[FileBody, int, int]]:
        """One file of mixed diffs as one file for each diff, so that each part is uniform."""
        blobs = self._env.persist.blobs
        with blobs.open(entry["uri"]) as source:
            table = pq.read_table(source)
        directory = self._env.persist.shard_directory(shard_id)
        found = []
        for diff in (1, -1):
            chosen = table.filter(pc.equal(table[DIFF_COLUMN], diff)).drop_columns([DIFF_COLUMN])
            if chosen.num_rows:
                body = uniform_file(blobs, chosen, directory, Uniform(Timestamp(0), diff))
                found.append((body, diff, chosen.num_rows))
        return found


def _answer(result: WriteResult) -> dict[str, int]:
    return {
        "timestamp": int(result.timestamp),
        "inserted": result.inserted,
        "deleted": result.deleted,
    }


def _decode(text: str) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(base64.b64decode(text))) as reader:
        return reader.read_all()


def _with_diff(table: pa.Table, desc: RelationDesc, name: str) -> pa.Table:
    """The rows with the relation's own types and a diff. Raises SLACKWATER_NOT_NULL_VIOLATION."""
    schema = desc.arrow_schema()
    target = pa.schema([*schema, pa.field(DIFF_COLUMN, pa.int64(), False)])
    if not table.num_columns:
        return target.empty_table()
    columns = []
    for column in desc.columns:
        if column.name not in table.column_names and column.nullable:
            # The statement was planned before the column was added.
            columns.append(pa.nulls(table.num_rows, schema.field(column.name).type))
            continue
        values = table.column(column.name)
        if not column.nullable and values.null_count:
            raise user_error(
                "SLACKWATER_NOT_NULL_VIOLATION", columnName=column.name, objectName=name
            )
        wanted = schema.field(column.name).type
        # A cast to the type that it has fails for NULL around a NOT NULL field.
        columns.append(values if values.type == wanted else values.cast(wanted))
    diffs = (
        table.column(DIFF_COLUMN).cast(pa.int64())
        if DIFF_COLUMN in table.column_names
        else pa.chunked_array([pa.repeat(pa.scalar(1, pa.int64()), table.num_rows)])
    )
    return pa.Table.from_arrays([*columns, diffs], schema=target)


def _file(entry: Mapping[str, Any]) -> FileBody:
    return FileBody(
        uri=entry["uri"],
        size_bytes=int(entry["size_bytes"]),
        modified_ms=int(entry["modified_ms"]),
        uniform=None,
    )


def _uniform(body: FileBody, diff: int, rows: int, time: Timestamp) -> NewPart:
    stamped = FileBody(body.uri, body.size_bytes, body.modified_ms, Uniform(time, diff))
    return NewPart(stamped, rows, time, time, diff < 0)
