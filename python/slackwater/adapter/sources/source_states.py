"""The durable state of ingestions: their states, statistics and the history of their statuses.

A step is derived from a state. Its transaction first checks that this state still is the stored
one, by the number of steps that were committed: every step adds one, and only a leader, whose
epoch the same transaction checks, commits steps. So of two steps that were derived from one state
one commits, whatever became of the answers; the other is superseded, and its ingestion is built
again from the stored state.

The row of a source exists from its creation to its drop, both inside the transactions of the
catalog. Later steps find no row and change nothing.

Source: spec controllers 2.11, 5.2, traps 12 and 13.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from slackwater.adapter.writing.group_commit import GroupCommitter, Write
from slackwater.checkpoints import statements
from slackwater.persist.parts import RowsOrParts
from slackwater.persist.tables import source_states, source_statistics, source_status_history
from slackwater.persist.transactions import Step, Transactor
from slackwater.repr.errors import user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.storage.ingestion import (
    IngestionStep,
    Reached,
    SourceStatistics,
    SourceStatus,
    StatusChange,
    StepSuperseded,
)
from slackwater.storage.source_time import SourceFrontier

T = TypeVar("T")

HISTORY_KEPT = 200
"""The number of changes of status that are kept of each source by default."""

_TABLES = (source_states, source_statistics, source_status_history)


class SourceStates:
    """The durable states of all sources. Thread-safe.

    Methods that do not run in the caller's transaction raise SLACKWATER_METASTORE_UNAVAILABLE.
    """

    def __init__(self, metastore: Transactor, committer: GroupCommitter) -> None:
        self._metastore = metastore
        self._committer = committer
        self._history_kept = HISTORY_KEPT
        self._whole: set[GlobalId] = set()
        self._begun: frozenset[tuple[GlobalId, str]] = frozenset()
        self._arriving: dict[GlobalId, SourceStatistics] = {}

    def configure(self, parameters: Mapping[str, str]) -> None:
        """Goes on with those of the parameters that concern sources."""
        kept = parameters.get("keep_n_source_status_history_entries")
        if kept is not None:
            self._history_kept = int(kept)

    def forget(self, conn: Connection, source_id: GlobalId) -> None:
        """Removes all that is kept of a source, in the transaction that drops it."""
        for table in _TABLES:
            conn.execute(sa.delete(table).where(table.c.source_id == source_id))
        statements.forget(conn, source_id)

    def reached(self, source_id: GlobalId) -> Reached:
        """The stored state of a source, without its frontier, which the remap has.

        Raises SLACKWATER_DEPENDENCY_DROPPED.
        """

        def read(conn: Connection) -> Reached:
            row = _row(conn, source_states, source_id)
            if row is None:
                raise user_error("SLACKWATER_DEPENDENCY_DROPPED", objectName=source_id)
            counted = _row(conn, source_statistics, source_id)
            statistics = SourceStatistics() if counted is None else _decode(counted.counters)
            return Reached(row.step, row.state or None, None, statistics)

        return self._metastore.query(read)

    def has_snapshot(self, source_id: GlobalId) -> bool:
        """Whether reads from now on find the first contents of a source. Once they do, they go on.

        Raises SLACKWATER_DEPENDENCY_DROPPED.
        """
        if source_id not in self._whole and self._found(source_id).snapshot_committed:
            self._whole.add(source_id)
        return source_id in self._whole

    def has_begun(self, source_id: GlobalId, export: str) -> bool:
        """Whether reads from now on find the first contents of an export of a running source.

        Raises SLACKWATER_DEPENDENCY_DROPPED.
        """
        if (source_id, export) not in self._begun:
            begun = self._found(source_id).begun
            self._begun |= {(source_id, each) for each in begun}
        return (source_id, export) in self._begun

    def arrived(self, source_id: GlobalId) -> None:
        """Reads find from now on what the steps of this source have committed."""
        self._arriving.pop(source_id, None)

    def _found(self, source_id: GlobalId) -> SourceStatistics:
        """The statistics of a source without the step that no read may find yet.

        A step is durable a moment before its time is the one at which others read.
        """
        stored = self.reached(source_id).statistics
        # After the look: a step that was durable by then and is on its way no more has arrived.
        return self._arriving.get(source_id, stored)

    def commit(
        self,
        source_id: GlobalId,
        reached: Reached,
        step: IngestionStep,
        appends: Mapping[int, RowsOrParts],
        more: Sequence[Step] = (),
    ) -> Timestamp:
        """Commits rows with ``__diff`` by shard and the durable state of `step`, at one time.

        Returns the time. Until the caller says that the step has `arrived`, nobody is told of the
        first contents in it.

        The steps in `more` run in the same transaction. Raises `StepSuperseded` unless `reached` is
        the stored state, SLACKWATER_DEPENDENCY_DROPPED, and what `GroupCommitter.submit` raises.
        """
        after = reached.after(step)
        self._arriving[source_id] = reached.statistics

        def advance(conn: Connection) -> None:
            row = _row(conn, source_states, source_id)
            if row is None:
                raise user_error("SLACKWATER_DEPENDENCY_DROPPED", objectName=source_id)
            if row.step != reached.steps:
                raise StepSuperseded(source_id, reached.steps, row.step)
            conn.execute(
                sa.update(source_states)
                .where(source_states.c.source_id == source_id)
                .values(step=after.steps, state=step.state)
            )
            write_statistics(conn, source_id, after.statistics)

        # Each attempt has an id of its own: another attempt's rows are not these rows.
        write = Write(
            write_id=f"{source_id}-{uuid.uuid4().hex}",
            appends=appends,
            inserted=sum(rows.num_rows for rows in step.updates.values()),
            steps=(advance, *more),
        )
        return self._committer.submit(write).result().timestamp

    def record(self, changes: Sequence[StatusChange]) -> None:
        """Adds to the history, which is cut to its length; dropped sources are left out."""
        kept = self._history_kept

        def add(conn: Connection) -> None:
            for source_id in dict.fromkeys(change.source_id for change in changes):
                if _row(conn, source_states, source_id) is not None:
                    _append_history(conn, [c for c in changes if c.source_id == source_id], kept)

        self._metastore.transact(add)

    def history(self) -> tuple[StatusChange, ...]:
        """The last changes of every source, oldest first."""
        table = source_status_history
        statement = sa.select(table).order_by(table.c.occurred_ms, table.c.number)
        rows = self._metastore.query(lambda conn: conn.execute(statement).all())
        return tuple(
            StatusChange(
                row.occurred_ms,
                GlobalId(row.source_id),
                SourceStatus(row.status, row.error, json.loads(row.details)),
            )
            for row in rows
        )


def create_state(conn: Connection, source_id: GlobalId) -> None:
    """Begins the state of a source, in the transaction that creates it; one that exists stays."""
    if _row(conn, source_states, source_id) is None:
        conn.execute(sa.insert(source_states).values(source_id=source_id, step=0, state=""))


def _row(conn: Connection, table: sa.Table, source_id: GlobalId) -> sa.Row[tuple[object]] | None:
    return conn.execute(sa.select(table).where(table.c.source_id == source_id)).one_or_none()


def _decode(counters: str) -> SourceStatistics:
    found = json.loads(counters)
    return SourceStatistics(**{**found, "begun": tuple(found.get("begun", ()))})


def write_statistics(conn: Connection, source_id: GlobalId, statistics: SourceStatistics) -> None:
    counters = json.dumps(asdict(statistics))
    updated = conn.execute(
        sa.update(source_statistics)
        .where(source_statistics.c.source_id == source_id)
        .values(counters=counters)
    )
    if updated.rowcount == 0:
        conn.execute(sa.insert(source_statistics).values(source_id=source_id, counters=counters))


def _append_history(conn: Connection, changes: Sequence[StatusChange], kept: int) -> None:
    """Adds the changes of one source, of which the last `kept` stay."""
    table = source_status_history
    own = table.c.source_id == changes[0].source_id
    last = conn.scalar(sa.select(sa.func.max(table.c.number)).where(own)) or 0
    rows = [
        {
            "source_id": change.source_id,
            "number": number,
            "occurred_ms": change.occurred_at_ms,
            "status": change.status.status,
            "error": change.status.error,
            "details": json.dumps(dict(change.status.details), default=str),
        }
        for number, change in enumerate(changes, start=last + 1)
    ]
    conn.execute(sa.insert(table), rows)
    conn.execute(sa.delete(table).where(own, table.c.number <= last + len(rows) - kept))


def frontier_of_state(state: str) -> SourceFrontier:
    """The source frontier of a source of the first version, by the state of its last step."""
    found = json.loads(state)
    return SourceFrontier.at(found["tick"] if "tick" in found else len(found["files"]))
