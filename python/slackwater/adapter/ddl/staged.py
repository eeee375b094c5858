"""Tables that are made, or replaced, together with their contents: one commit at one timestamp.

`stage` checks the statement, and finds the table that it replaces, before its query runs. `write`
commits the definition in the transaction of the group commit that brings the rows, so that a
failure anywhere leaves everything as it was. Source: docs/decisions 0015.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from slackwater.adapter import protocol
from slackwater.adapter.catalog.model import CATALOG_NAME, CatalogItem, CatalogState, ItemKind
from slackwater.adapter.catalog.ops import CatalogOp, CreateItem, DropItem, apply
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.tables import Tables
from slackwater.adapter.protocol import StagedTarget, StageTable, TableMode, TableRows
from slackwater.adapter.reading.reads import Reads
from slackwater.adapter.sessions.sessions import Execution
from slackwater.adapter.transactions import check_outside_block
from slackwater.adapter.writing.group_commit import GroupCommitter, Write
from slackwater.adapter.writing.writes import Writes
from slackwater.persist.parts import NewPart, PartsAt
from slackwater.persist.rows import WriteResult
from slackwater.persist.transactions import Step
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import RelationDesc


@dataclass(frozen=True, slots=True)
class StagedTables:
    """CREATE TABLE AS SELECT, REPLACE TABLE, and their forms in DataFrames. Thread-safe."""

    reads: Reads
    writes: Writes
    tables: Tables
    changes: Changes
    committer: GroupCommitter

    def stage(self, execution: Execution, definition: StageTable) -> StagedTarget:
        """The target of protocol section 2; nothing is changed.

        Raises whatever the definition would be refused for as the catalog is now.
        """
        check_outside_block(execution.session.transaction, definition.statement)
        state = self.changes.state
        planned = self.tables.plan_table(execution.user, definition.table)
        existing = _replaceable(state, definition)
        if existing is not None and _same_columns(existing, definition.table.schema):
            return _target(existing, existing, None)
        _refuse_dependents(state, existing)
        apply(state, [*_drop(existing), CreateItem(planned)])
        return _target(planned, existing, self.changes.reserve_shard())

    def write(self, execution: Execution, request: protocol.WriteTables) -> WriteResult:
        """The write of protocol section 2 with a definition: durable and visible when it answers.

        Raises what `Writes.write` and `stage` do, and SLACKWATER_CONCURRENT_CHANGE when the table
        is not what it was when it was staged. Repeating a `write_id` has one effect.
        """
        stated = request.definition
        if stated is None:
            raise AssertionError("the write brings no definition")
        definition, target = stated.staged, stated.target
        write_id, hold, session = request.write_id, request.hold, execution.session
        try:
            check_outside_block(session.transaction, definition.statement)
            if hold is not None and not self.reads.claim(hold):
                return self.writes.without_lock(write_id)
            if hold is None and target.replaces is not None:
                # Before ddl: who has the lock may want ddl.
                hold = self.reads.lock_for_write(session, [target.replaces], execution.cancellation)
            planned = self.tables.plan_table(execution.user, definition.table)
            rows = self._contents(planned, target, request.rows[0]) if stated.as_select else None
            with self.changes.defining(execution.cancellation):
                earlier = self.committer.written(write_id)
                if earlier is not None:
                    return earlier
                existing = self._expected(definition, target)
                parts, inserted = rows or (_nothing, 0)
                write = Write(write_id, {}, inserted, owner=hold)
                if existing is None or not _is_kept(existing, definition, target, rows is not None):
                    made = replace(planned, shard_id=target.shard)
                    return self._make(execution.user, existing, made, parts, write)
                with self.writes.retract_all(session, existing) as removed:
                    both = (removed, parts)
                    return self._refill(execution.user, existing, planned, both, write)
        finally:
            if hold is not None:
                self.reads.release(hold)

    def _contents(
        self, planned: CatalogItem, target: StagedTarget, rows: TableRows
    ) -> tuple[PartsAt, int] | None:
        if target.shard is not None:
            return self.writes.contents(replace(planned, shard_id=target.shard), rows)
        if target.replaces is None:
            raise AssertionError("a target is a table or a new shard")
        # A table that is gone is refused below the lock, unless this call repeats one.
        existing = self.changes.state.items.get(target.replaces)
        return None if existing is None else self.writes.contents(existing, rows)

    def _expected(self, definition: StageTable, target: StagedTarget) -> CatalogItem | None:
        """The table that is replaced, if it is the one that was staged."""
        if definition.mode is TableMode.CREATE:
            return None
        existing = self.changes.state.find(*_named(definition))
        if (None if existing is None else existing.id) != target.replaces:
            raise _changed(definition)
        return existing

    def _refill(
        self,
        user: str,
        existing: CatalogItem,
        planned: CatalogItem,
        parts: Sequence[PartsAt],
        write: Write,
    ) -> WriteResult:
        """Keeps the object, and replaces its contents, properties and comment."""
        altered = self.tables.redefined(existing, planned)

        def at(time: Timestamp) -> tuple[NewPart, ...]:
            return tuple(part for parts_at in parts for part in parts_at(time))

        filled = replace(write, appends={existing.stored.shard_id: at})

        def commit(step: Step) -> WriteResult:
            return self.committer.submit(replace(filled, steps=(step,))).result()

        return self.changes.commit_with_write(
            lambda _: [] if altered is None else [altered], user, commit
        )

    def _make(
        self,
        user: str,
        existing: CatalogItem | None,
        planned: CatalogItem,
        parts: PartsAt,
        write: Write,
    ) -> WriteResult:
        """Makes a new object; an existing one of that name is dropped in the same transaction."""
        _refuse_dependents(self.changes.state, existing)
        prepared: list[tuple[Timestamp, tuple[NewPart, ...]]] = []

        def define(conn: Connection) -> Sequence[CatalogOp]:
            time, first = prepared[-1]
            made = self.changes.with_first_parts(conn, planned, time, first)
            return [*_drop(existing), CreateItem(made)]

        def commit(step: Step) -> WriteResult:
            def at(time: Timestamp) -> Step:
                prepared.append((time, parts(time)))
                return step

            return self.committer.submit(replace(write, step_at=at)).result()

        return self.changes.commit_with_write(define, user, commit)


def _replaceable(state: CatalogState, definition: StageTable) -> CatalogItem | None:
    """The table that the statement replaces.

    Raises SLACKWATER_WRONG_KIND, and SLACKWATER_UNKNOWN_OBJECT when there has to be one.
    """
    existing = state.find(*_named(definition))
    if definition.mode is TableMode.CREATE:
        return None
    if existing is None and definition.mode is TableMode.CREATE_OR_REPLACE:
        return None
    found = state.get(*_named(definition), ItemKind.TABLE)
    if not found.is_writable:
        raise found.wrong_kind("table that no source fills")
    return found


def _same_columns(existing: CatalogItem, desc: RelationDesc) -> bool:
    """Whether a query's columns have the names and types of the table's.

    A query cannot state NOT NULL, DEFAULT and comments: the table keeps its own.
    """
    before = () if existing.desc is None else existing.desc.columns
    return [(each.name, each.spark_type) for each in before] == [
        (each.name, each.spark_type) for each in desc.columns
    ]


def _is_kept(
    existing: CatalogItem, definition: StageTable, target: StagedTarget, as_select: bool
) -> bool:
    """Whether the object stays. Raises SLACKWATER_CONCURRENT_CHANGE if it should and cannot."""
    if not as_select:
        return existing.desc == definition.table.schema
    if target.shard is None and not _same_columns(existing, definition.table.schema):
        raise _changed(definition)
    return target.shard is None


def _refuse_dependents(state: CatalogState, existing: CatalogItem | None) -> None:
    """Refuses to replace the columns of a table with dependents: they would lose the object."""
    if existing is None:
        return
    above = [each for each in state.with_dependents([existing.id]) if each.id != existing.id]
    if above:
        raise user_error(
            "SLACKWATER_DEPENDENT_OBJECTS",
            action="replace the columns of",
            objectName=existing.full_name,
            dependents=", ".join(
                sorted(f"{each.kind.display_name} {each.full_name}" for each in above)
            ),
        )


def _nothing(_: Timestamp) -> tuple[NewPart, ...]:
    return ()


def _drop(existing: CatalogItem | None) -> list[CatalogOp]:
    return [] if existing is None else [DropItem(existing.id, replaces=True)]


def _target(item: CatalogItem, existing: CatalogItem | None, shard: int | None) -> StagedTarget:
    replaces = None if existing is None else existing.id
    return StagedTarget(item.id, replaces, shard, item.desc or RelationDesc(()))


def _changed(definition: StageTable) -> SlackwaterError:
    full_name = ".".join((CATALOG_NAME, *_named(definition)))
    return user_error("SLACKWATER_CONCURRENT_CHANGE", objectName=full_name)


def _named(definition: StageTable) -> tuple[str, str]:
    return protocol.schema_of(definition.table.namespace), definition.table.name
