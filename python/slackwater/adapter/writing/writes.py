"""Writes: from the rows or files that Spark produced to one commit of the group committer.

Inside a transaction block rows are kept until COMMIT and then committed together, at one
timestamp or not at all. Source: spec coordinator 1.6, 1.9, 3.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.adapter import protocol
from slackwater.adapter.catalog.model import CatalogItem
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.protocol import PrepareWrite, StagedFile, TableRows, WriteMode
from slackwater.adapter.sessions.buffered import BufferedWrite
from slackwater.adapter.sessions.sessions import Session
from slackwater.adapter.time.watch import Cancellation
from slackwater.adapter.transactions import check_write_outside_block
from slackwater.adapter.writing.group_commit import (
    GroupCommitter,
    Write,
    at_time,
    concatenated,
    count_changes,
)
from slackwater.adapter.writing.staged_files import staged_files
from slackwater.controller.holds import Holder, HoldKind
from slackwater.persist.blobs import inline_part, uniform_file
from slackwater.persist.client import WriteResult
from slackwater.persist.ipc import from_stream
from slackwater.persist.parts import FileBody, NewPart, PartsAt, RowsOrParts, Uniform
from slackwater.repr.errors import FatalError, SlackwaterError, unsupported, user_error
from slackwater.repr.frontier import TIMESTAMP_MIN, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import DIFF_COLUMN, DIFF_FIELD, RelationDesc


@dataclass(frozen=True, slots=True)
class _Asked:
    """A write of one table."""

    item: CatalogItem
    rows: TableRows


@dataclass(frozen=True, slots=True)
class CommitOwner:
    """The owner of a commit: the id of the write, and the hold whose write locks it has."""

    write_id: str
    hold: str | None = None


@dataclass(frozen=True, slots=True)
class _Received:
    """The contents of a write: rows that end with ``__diff``, and files, each of one diff."""

    rows: pa.Table
    files: tuple[tuple[FileBody, int, int], ...]
    inserted: int
    deleted: int


class Locks(Protocol):
    """The write locks of statements, each by the token of the hold that it belongs to."""

    def claim(self, token: str) -> bool:
        """Keeps a lock for the write that has come; False if there is no such lock any more."""
        ...

    def has_lock(self, token: str) -> bool:
        """Whether the hold keeps others' writes away."""
        ...

    def lock_for_write(
        self, session: Session, tables: Sequence[GlobalId], cancellation: Cancellation
    ) -> str:
        """A hold that reads nothing and keeps other writes away from `tables`."""
        ...

    def release(self, token: str) -> None:
        """Ends a hold and its write locks. Unknown holds are ignored."""
        ...


class Writes:
    """Commits writes to tables. Thread-safe."""

    def __init__(self, relations: Relations, committer: GroupCommitter, locks: Locks) -> None:
        self._relations = relations
        self._storage = relations.storage
        self._persist = relations.persist
        self._committer = committer
        self._locks = locks

    def directory(self, asked: PrepareWrite) -> str:
        """The directory for the files of a write to a table, or to a reserved shard."""
        shard = asked.shard
        if shard is None:
            shard = self._table(asked.table).stored.shard_id
        return self._persist.files.staging_directory(shard, asked.write_id)

    def write(
        self, session: Session, request: protocol.WriteTables, cancellation: Cancellation
    ) -> WriteResult:
        """The write of protocol section 2: answers once it is durable and applied.

        Once its commit has begun, it is neither cancelled nor late: the answer is its outcome.
        Before that, SLACKWATER_CANCELED and SLACKWATER_LOCK_TIMEOUT mean: nothing was written.

        Raises SLACKWATER_READ_ONLY_RELATION, SLACKWATER_NOT_NULL_VIOLATION, SLACKWATER_FENCED,
        SLACKWATER_FOREIGN_FILE, SLACKWATER_METASTORE_UNAVAILABLE, SLACKWATER_DEPENDENCY_DROPPED,
        SLACKWATER_LOCK_LOST, SLACKWATER_ROWS_NOT_PRESENT, and what the state of the session's
        transaction forbids. Repeating a `write_id` has one effect.
        """
        write_id, hold = request.write_id, request.hold
        try:
            if hold is not None and not self._locks.claim(hold):
                return self.without_lock(write_id)
            asked = self._asked(request)
            if hold is not None or not _only_appends(asked):
                check_write_outside_block(
                    session.transaction, "A write that reads or replaces rows"
                )
            received = [self._received(each.item, each.rows) for each in asked]
            takes = [
                each.item.id
                for each, rows in zip(asked, received, strict=True)
                if each.rows.mode is WriteMode.OVERWRITE or rows.deleted
            ]
            if takes and (hold is None or not self._locks.has_lock(hold)):
                self._release(hold)
                hold = self._locks.lock_for_write(session, takes, cancellation)
            if takes and (earlier := self._committer.written(write_id)) is not None:
                return earlier
            owner = CommitOwner(write_id, hold)
            return self._commit_received(session, owner, (asked, received), cancellation)
        finally:
            self._release(hold)

    def _commit_received(
        self,
        session: Session,
        owner: CommitOwner,
        writes: tuple[Sequence[_Asked], Sequence[_Received]],
        cancellation: Cancellation,
    ) -> WriteResult:
        """Commits the rows of all tables together, or keeps them for the COMMIT of a block."""
        with ExitStack() as emptied:
            buffered: list[BufferedWrite] = []
            for each, received in zip(*writes, strict=True):
                if each.rows.mode is WriteMode.OVERWRITE:
                    # What it has is found out in the thread of the statement: its lock keeps
                    # everybody from changing it, and its hold keeps the files.
                    removed = emptied.enter_context(self.retract_all(session, each.item))
                    buffered.append(BufferedWrite(each.item.id, each.item.full_name, removed, 0, 0))
                elif received.deleted:
                    self._refuse_unmatched(session, each.item, received)
                buffered.append(self._buffered(each.item, received))
            if _only_appends(writes[0]):
                kept = [
                    session.buffer(each.rows.write_id, write)
                    for each, write in zip(writes[0], buffered, strict=True)
                ]
                if all(kept):
                    return WriteResult(TIMESTAMP_MIN, sum(write.inserted for write in buffered), 0)
            return self.commit(buffered, owner, cancellation)

    def _asked(self, request: protocol.WriteTables) -> list[_Asked]:
        """The writes of a request: of one table, or of several that are committed together.

        Raises SLACKWATER_UNSUPPORTED if one of several would not see what another one of them does.
        """
        asked = [_Asked(self._table(each.table), each) for each in request.rows]
        counts = Counter(each.item.id for each in asked)
        for each in asked:
            if each.rows.mode is not WriteMode.APPEND and counts[each.item.id] > 1:
                raise unsupported(
                    f"Replacing the rows of {each.item.full_name} in a statement that "
                    "writes to it twice",
                    advice="Write two statements.",
                )
        return asked

    def _release(self, hold: str | None) -> None:
        if hold is not None:
            self._locks.release(hold)

    def _refuse_unmatched(self, session: Session, item: CatalogItem, received: _Received) -> None:
        """Raises SLACKWATER_ROWS_NOT_PRESENT if a row would be there less than zero times.

        The caller has the table's write lock, so its rows stay until the commit.
        """
        held = self._relations.hold([item], Holder(HoldKind.STATEMENT, session.session_id))
        try:
            changes = [_uniform(body, diff, n, TIMESTAMP_MIN) for body, diff, n in received.files]
            if received.rows.num_rows:
                rows = at_time(received.rows, TIMESTAMP_MIN)
                changes.append(inline_part(rows))
            count = self._persist.reads.unmatched_retractions(item.stored.shard_id, changes)
        finally:
            self._storage.release(held)
        if count:
            raise user_error(
                "SLACKWATER_ROWS_NOT_PRESENT", objectName=item.full_name, count=str(count)
            )

    @contextmanager
    def retract_all(self, session: Session, item: CatalogItem) -> Iterator[PartsAt]:
        """The negation of the table's contents, for a commit inside of the block.

        The caller has the table's write lock. The contents are those when the block begins.
        """
        held = self._relations.hold([item], Holder(HoldKind.STATEMENT, session.session_id))
        try:
            shard_id = item.stored.shard_id
            yield self._persist.reads.negation(shard_id, self._persist.reads.upper(shard_id)).at
        finally:
            self._storage.release(held)

    def commit(
        self,
        writes: Sequence[BufferedWrite],
        owner: CommitOwner,
        cancellation: Cancellation,
    ) -> WriteResult:
        """Commits all `writes` at one timestamp. Cancelled only before the commit has begun."""
        cancellation.check()
        appends: dict[int, list[RowsOrParts]] = {}
        for write in writes:
            item = self._relations.state.items.get(write.table)
            if item is None or item.shard_id is None:
                raise user_error("SLACKWATER_DEPENDENCY_DROPPED", objectName=write.name)
            appends.setdefault(item.shard_id, []).append(write.rows)
        future = self._committer.submit(
            Write(
                write_id=owner.write_id,
                appends={shard: self._together(shard, each) for shard, each in appends.items()},
                inserted=sum(write.inserted for write in writes),
                deleted=sum(write.deleted for write in writes),
                owner=owner.hold,
            ),
            cancellation.left_ms(),
        )

        def withdraw() -> None:
            self._committer.withdraw(owner.write_id)

        with cancellation.on_cancel(withdraw):
            return future.result()

    def _together(self, shard_id: int, rows: Sequence[RowsOrParts]) -> RowsOrParts:
        """All rows that a commit writes to one shard, in files if they are many.

        The statements of a block together may be too much for the committing thread to write.
        """
        tables = [each for each in rows if isinstance(each, pa.Table)]
        others = [each for each in rows if not isinstance(each, pa.Table)]
        wholes = concatenated(tables)
        if len(wholes) == 1 and not others:
            return staged_files(self._persist, shard_id, wholes[0])
        others.extend(self._parts(shard_id, whole) for whole in wholes)
        return lambda time: tuple(part for parts_at in others for part in parts_at(time))

    def _parts(self, shard_id: int, rows: RowsOrParts) -> PartsAt:
        if not isinstance(rows, pa.Table):
            return rows
        if not rows.num_rows:
            return lambda _: ()
        return lambda time: self._persist.files.new_parts(shard_id, at_time(rows, time))

    def is_written(self, write_id: str) -> bool:
        """Whether the write has been committed, in this process or one before."""
        return self._committer.written(write_id) is not None

    def without_lock(self, write_id: str) -> WriteResult:
        """The result of a write that has lost its lock, if it was committed before.

        Raises SLACKWATER_LOCK_LOST if it was not.
        """
        earlier = self._committer.written(write_id)
        if earlier is None:
            raise user_error("SLACKWATER_LOCK_LOST")
        return earlier

    def _table(self, global_id: GlobalId | None) -> CatalogItem:
        if global_id is None:
            raise FatalError("a write names no table and brings no definition")
        item = self._relations.item(global_id)
        if not item.is_writable:
            raise user_error(
                "SLACKWATER_READ_ONLY_RELATION",
                objectName=item.full_name,
                kind=item.kind.value,
            )
        # A table whose contents are lost takes no rows: nobody could tell which it has.
        self._relations.frontiers(item)
        return item

    def contents(self, item: CatalogItem, rows: TableRows) -> tuple[PartsAt, int]:
        """The parts of `rows` for a table, whose shard may be a reserved one, and their number."""
        buffered = self._buffered(item, self._received(item, rows))
        return self._parts(item.stored.shard_id, buffered.rows), buffered.inserted

    def _received(self, item: CatalogItem, asked: TableRows) -> _Received:
        """The rows of a request, with the types of the table's columns."""
        shard_id, desc = item.stored.shard_id, item.stored.desc
        are_diffs = asked.mode is WriteMode.DIFF
        rows = pa.concat_tables(
            [
                _with_diff(pa.table([]), desc, item.full_name),
                *(
                    _with_diff(_decode(text, are_diffs), desc, item.full_name)
                    for text in asked.inline
                ),
            ]
        )
        files: list[tuple[FileBody, int, int]] = []
        written = self._own_files(item, asked)
        self._persist.blobs.settle(file.uri for file in written)
        for file in written:
            if are_diffs:
                files.extend(self._split(shard_id, file))
            else:
                body = FileBody(file.uri, file.size_bytes, file.modified_ms, uniform=None)
                files.append((body, 1, file.rows))
        inserted, deleted = count_changes(rows)
        inserted += sum(diff * count for _, diff, count in files if diff > 0)
        deleted -= sum(diff * count for _, diff, count in files if diff < 0)
        return _Received(rows, tuple(files), inserted, deleted)

    def _buffered(self, item: CatalogItem, received: _Received) -> BufferedWrite:
        inserted, deleted = received.inserted, received.deleted
        if not received.files:
            return BufferedWrite(item.id, item.full_name, received.rows, inserted, deleted)
        inline = self._parts(item.stored.shard_id, received.rows)

        def parts_at(time: Timestamp) -> tuple[NewPart, ...]:
            added = (_uniform(body, diff, count, time) for body, diff, count in received.files)
            return (*inline(time), *added)

        return BufferedWrite(item.id, item.full_name, parts_at, inserted, deleted)

    def _own_files(self, item: CatalogItem, asked: TableRows) -> tuple[StagedFile, ...]:
        """The files of the request, with their URIs as the coordinator writes them.

        Raises SLACKWATER_FOREIGN_FILE, with nothing of its URI, for one that is not directly in
        the directory that `directory` gave for this write of this table, and for one named twice.
        """
        if not asked.files:
            return ()

        def refuse(reason: str) -> SlackwaterError:
            return user_error("SLACKWATER_FOREIGN_FILE", objectName=item.full_name, reason=reason)

        try:
            directory = self._persist.files.staging_directory(item.stored.shard_id, asked.write_id)
        except ValueError:
            raise refuse("its id cannot be that of a write with files") from None
        own: dict[str, StagedFile] = {}
        for number, file in enumerate(asked.files, start=1):
            uri = self._persist.blobs.own(file.uri, directory)
            if uri is None:
                raise refuse(f"file {number} is not in the directory of this write")
            if uri in own:
                raise refuse(f"file {number} is named twice")
            own[uri] = replace(file, uri=uri)
        return tuple(own.values())

    def _split(self, shard_id: int, file: StagedFile) -> list[tuple[FileBody, int, int]]:
        """Splits a file of mixed diffs into one for each diff, so that each part is uniform."""
        blobs = self._persist.blobs
        with blobs.open(file.uri) as source:
            table = pq.read_table(source)
        directory = self._persist.files.shard_directory(shard_id)
        found = []
        for diff in pc.unique(table[DIFF_COLUMN]).to_pylist():
            if diff:
                chosen = table.filter(pc.equal(table[DIFF_COLUMN], diff))
                chosen = chosen.drop_columns([DIFF_COLUMN])
                body = uniform_file(blobs, chosen, directory, Uniform(Timestamp(0), diff))
                found.append((body, diff, chosen.num_rows))
        return found


def _only_appends(asked: Sequence[_Asked]) -> bool:
    return all(each.rows.mode is WriteMode.APPEND for each in asked)


def _decode(text: str, with_diff: bool) -> pa.Table:
    rows = from_stream(base64.b64decode(text))
    if with_diff or DIFF_COLUMN not in rows.column_names:
        return rows
    # Only a write of diffs says how often a row is meant.
    return rows.drop_columns([DIFF_COLUMN])


def _with_diff(table: pa.Table, desc: RelationDesc, name: str) -> pa.Table:
    """The rows with the relation's own types and a diff. Raises SLACKWATER_NOT_NULL_VIOLATION."""
    schema = desc.arrow_schema()
    target = pa.schema([*schema, DIFF_FIELD])
    if not table.num_columns:
        return target.empty_table()
    columns = []
    for column in desc.columns:
        stored = column.stored_name
        wanted = schema.field(stored).type
        if stored not in table.column_names and column.nullable:
            # The statement was planned before the column was added.
            columns.append(pa.nulls(table.num_rows, wanted))
            continue
        values = table.column(stored)
        if not column.nullable and values.null_count:
            raise user_error(
                "SLACKWATER_NOT_NULL_VIOLATION", columnName=column.name, objectName=name
            )
        # A cast to the type that it has fails for NULL around a NOT NULL field.
        columns.append(values if values.type == wanted else values.cast(wanted))
    diffs = (
        table.column(DIFF_COLUMN).cast(pa.int64())
        if DIFF_COLUMN in table.column_names
        else pa.chunked_array([pa.repeat(pa.scalar(1, pa.int64()), table.num_rows)])
    )
    return pa.Table.from_arrays([*columns, diffs], schema=target)


def _uniform(body: FileBody, diff: int, rows: int, time: Timestamp) -> NewPart:
    stamped = FileBody(body.uri, body.size_bytes, body.modified_ms, Uniform(time, diff))
    return NewPart(stamped, rows, time, time, diff < 0)
