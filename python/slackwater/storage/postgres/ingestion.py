"""The ingestion of tables of PostgreSQL: a snapshot, then transaction after transaction.

The first step makes the replication slot, copies all tables as they are at the position where the
slot begins, and commits them at once. Each later step takes what was committed since, whole
transactions only; a transaction is in one step, however large it is.

**State.** ``{"version": 1, "is_anew": ..., "tables": {...}}``: the frontier says up to which
position of the upstream's log everything was read, the tables what their columns are.

**The upstream keeps its log** from the last position that it was told, so it is told only what is
durable here. Nothing is ever rewound: a slot that was made and whose snapshot was not committed is
made again. Before the tables are read anew, a step says so durably; a process that finds that
begins the snapshot again.

Source: spec controllers 5.1 to 5.5; docs/decisions 0072.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import pyarrow as pa

from slackwater.repr.dataflow_error import error_rows
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.storage.ingestion import (
    IngestionProgress,
    IngestionStep,
    Resnapshot,
    SourceStatistics,
    SourceStatus,
)
from slackwater.storage.pieces import StagedRows
from slackwater.storage.postgres.changes import TableChanges, TableState
from slackwater.storage.postgres.pgoutput import Begin, Commit, Relation, Truncate, decoded
from slackwater.storage.postgres.replication import (
    Keepalive,
    Replication,
    ServerIdentity,
    SlotState,
    Upstream,
)
from slackwater.storage.source_time import SourceFrontier

STEP_MESSAGES = 200_000
STEP_BYTES = 64 * 1024 * 1024
"""A step after the first takes about so much, or less, unless one transaction is larger."""
READ_MESSAGES = 20_000
WAIT_MS = 200
CHECK_MS = 10_000
"""The time between two looks at the publication, and between two signs of life."""


@dataclass(frozen=True, slots=True)
class PostgresConfig:
    """The description of a source. `slot` is the name of its replication slot."""

    name: str
    publication: str
    slot: str
    identity: ServerIdentity


def states_of(state: str | None) -> Mapping[str, TableState]:
    """The states of tables in that of their ingestion, by their exports."""
    found = {} if state is None else json.loads(state)["tables"]
    return {
        export: TableState(
            key=None if each["key"] is None else tuple(each["key"]),
            member=each["member"],
            gone=tuple(each["gone"]),
            ignored=tuple(each["ignored"]),
            broken=each["broken"],
        )
        for export, each in found.items()
    }


class PostgresIngestion:
    """The ingestion of the tables of one publication.

    Promise: at each time every table has what it has at one position of the upstream's log, the
    same for all tables, and never a part of a transaction. A table that cannot be followed has an
    error, and holds up no other.
    """

    def __init__(
        self,
        config: PostgresConfig,
        upstream: Upstream,
        tables: Mapping[str, TableChanges],
        frontier: SourceFrontier | None,
        state: str | None,
    ) -> None:
        """`tables` are those of `state`, by their exports. `frontier` None: nothing was read."""
        self._config = config
        self._upstream = upstream
        self._tables = tables
        self._by_oid = {each.table.oid: each for each in tables.values()}
        self._frontier = frontier
        self._is_anew = state is not None and bool(json.loads(state)["is_anew"])
        self._last_state = state
        self._wanted: Resnapshot | None = None
        self._anew: Resnapshot | None = None
        self._replication: Replication | None = None
        self._copying: Iterator[None] | None = None
        self._checked_ms = self._told_ms = self._committed_ms = 0
        self._pending: IngestionStep | None = None
        self._reported: SourceStatus | None = None
        self._begin()

    def _begin(self) -> None:
        """Nothing of a step was read yet."""
        self._position = _position(self._frontier)
        self._in_transaction = self._skips = False
        self._messages = self._size_bytes = self._rows = 0
        self._copying = None

    def resnapshot(self) -> Resnapshot:
        """Copies all tables again, and commits the difference to what there is.

        Any thread may call this.
        """
        self._wanted = self._wanted or Resnapshot()
        return self._wanted

    def poll(self, now_ms: int) -> IngestionStep | IngestionProgress | None:
        if self._pending is not None:
            return self._pending
        try:
            return self._polled(now_ms)
        except BaseException:
            # What the server has sent and no step has is sent again, from where steps are.
            self.close()
            raise

    def _polled(self, now_ms: int) -> IngestionStep | IngestionProgress | None:
        if self._wanted is not None and self._frontier is not None and not self._is_anew:
            return self._intention()
        replication = self._connected(now_ms)
        if self._frontier is None or self._is_anew:
            return self._snapshot(replication)
        self._read(replication)
        if self._in_transaction:
            return self._progress(None)
        if now_ms - self._checked_ms >= CHECK_MS:
            self._look_at(replication)
            self._checked_ms = now_ms
        step = self._streamed(now_ms)
        if step is None and now_ms - self._told_ms >= CHECK_MS:
            replication.confirm(_position(self._frontier))
            self._told_ms = now_ms
        return step

    def committed(self, step: IngestionStep) -> None:
        begins_anew = self._frontier is not None and not self._is_anew
        self._is_anew = bool(json.loads(step.state)["is_anew"])
        self._last_state = step.state
        if begins_anew and self._is_anew:
            self.close()
            return
        self._frontier = step.frontier
        self._reported = step.status
        self._pending = None
        for table in self._tables.values():
            table.committed()
        was_snapshot = self._copying is not None
        self._begin()
        if self._anew is not None:
            self._anew.done.set()
            self._anew = None
        if self._replication is None:
            return
        try:
            if was_snapshot:
                self._replication.start(self._position)
            self._replication.confirm(self._position)
        except SlackwaterError:
            self.close()  # The next poll connects, or says why it cannot.

    def close(self) -> None:
        self._replication = None
        self._upstream.forget()
        for table in self._tables.values():
            table.forget()
        self._pending = None
        self._begin()

    def _connected(self, now_ms: int) -> Replication:
        """The server, which is the one that the source was created for, and sends what is next.

        Raises SLACKWATER_SOURCE_REPLACED, SLACKWATER_SOURCE_HISTORY_LOST.
        """
        replication = self._upstream.replication()
        if replication is self._replication:
            return replication
        if self._replication is not None:
            # The connection was altered: what the old one has sent is sent again.
            self._begin()
            for table in self._tables.values():
                table.forget()
        self._refuse_another(replication.identity())
        if self._frontier is not None and not self._is_anew:
            self._refuse_lost(replication.slot())
            self._look_at(replication)
            replication.start(self._position)
            self._checked_ms = self._told_ms = now_ms
        self._replication = replication
        return replication

    def _refuse_another(self, now: ServerIdentity) -> None:
        before = self._config.identity
        for what, then, found in (
            ("the PostgreSQL server", before.system, now.system),
            ("the timeline of the PostgreSQL server", str(before.timeline), str(now.timeline)),
        ):
            if then != found:
                raise user_error(
                    "SLACKWATER_SOURCE_REPLACED",
                    objectName=self._config.name,
                    what=what,
                    before=then,
                    now=found,
                )

    def _refuse_lost(self, slot: SlotState | None) -> None:
        if slot is None:
            raise self._history_lost("is gone")
        if slot.is_lost:
            raise self._history_lost("has lost a part of the log")
        if slot.confirmed > self._position:
            raise self._history_lost("was advanced by somebody else")

    def _history_lost(self, what: str) -> SlackwaterError:
        return user_error(
            "SLACKWATER_SOURCE_HISTORY_LOST",
            objectName=self._config.name,
            what=f"its replication slot {self._config.slot} {what}",
            advice=f"ALTER SOURCE {self._config.name} RESNAPSHOT reads all tables again, and "
            "commits the difference to what there is.",
        )

    def _intention(self) -> IngestionStep:
        """The step that says that the tables are read anew from now on."""
        self.close()
        if self._frontier is None:
            raise AssertionError("a source without a snapshot has nothing to read again")
        status = self._reported or SourceStatus("running")
        state = self._state(is_anew=True)
        self._pending = IngestionStep({}, state, self._frontier, status)
        return self._pending

    def _snapshot(self, replication: Replication) -> IngestionStep | IngestionProgress:
        if self._copying is None:
            if self._is_anew:
                self._anew, self._wanted = self._wanted or self._anew, None
            position = replication.create_slot()
            if position is None:
                return self._progress(0)
            self._position = position
            self._copying = self._copied(replication)
        before = self._size_bytes
        for _ in self._copying:
            if self._size_bytes - before > STEP_BYTES:
                return self._progress(self._rows)
        return self._step(is_snapshot=True)

    def _copied(self, replication: Replication) -> Iterator[None]:
        """Copies one piece of a table after the other."""
        upstream = replication.tables()
        for table in self._tables.values():
            now = upstream.get(table.table.oid)
            can_be_read = table.begin_snapshot(now, self._frontier is None)
            if now is None or not can_be_read:
                continue
            for texts in replication.copy(now, table.columns_to_copy()):
                table.copied(texts)
                self._rows += texts.num_rows
                self._size_bytes += texts.nbytes
                yield

    def _read(self, replication: Replication) -> None:
        """Reads what has come. A step ends between transactions."""
        while self._in_transaction or (
            self._messages < STEP_MESSAGES and self._size_bytes < STEP_BYTES
        ):
            received = replication.read(READ_MESSAGES, WAIT_MS if self._in_transaction else 0)
            if not received:
                return
            for each in received:
                if isinstance(each, Keepalive):
                    if not self._in_transaction:
                        self._position = max(self._position, each.end)
                else:
                    self._take(each)

    def _take(self, data: bytes) -> None:
        self._messages += 1
        self._size_bytes += len(data)
        message = decoded(data)
        match message:
            case None:
                return
            case Begin(commit_lsn=commit_lsn):
                self._in_transaction = True
                self._skips = commit_lsn < self._position
            case Commit(end_lsn=end_lsn):
                self._in_transaction = False
                self._position = max(self._position, end_lsn)
            case Relation(oid=oid):
                if oid in self._by_oid:
                    self._by_oid[oid].relation(message)
            case Truncate(oids=oids):
                for oid in oids:
                    if oid in self._by_oid and not self._skips:
                        self._by_oid[oid].take(message)
            case change:
                if change.oid in self._by_oid and not self._skips:
                    self._by_oid[change.oid].take(change)

    def _look_at(self, replication: Replication) -> None:
        """Compares the tables with what the upstream says of them now."""
        upstream = replication.tables()
        for table in self._tables.values():
            table.look(upstream.get(table.table.oid))

    def _streamed(self, now_ms: int) -> IngestionStep | None:
        """The step of what was read; None when nothing is new.

        The log of an upstream goes on also where no table of the source changes. That is told now
        and then.
        """
        is_full = self._messages >= STEP_MESSAGES or self._size_bytes >= STEP_BYTES
        is_due = is_full or now_ms - self._committed_ms >= CHECK_MS
        if self._messages or any(table.is_changed for table in self._tables.values()):
            step = self._step(is_snapshot=False)
            if step.updates or step.errors or step.state != self._last_state:
                self._committed_ms = now_ms
                return step
            self._pending = None
        if self._frontier is None:
            raise AssertionError("a source without a snapshot has no stream")
        has_moved = self._position > _position(self._frontier)
        if self._reported is None or (is_due and has_moved):
            self._committed_ms = now_ms
            return self._step(is_snapshot=False)
        return None

    def _step(self, *, is_snapshot: bool) -> IngestionStep:
        updates: dict[str, pa.Table | StagedRows] = {}
        errors: dict[str, pa.Table] = {}
        count = 0
        for export, table in self._tables.items():
            changed = table.changes()
            count += changed.count
            if changed.rows is not None:
                updates[export] = changed.rows
            if changed.errors:
                errors[export] = error_rows(list(changed.errors))
        self._pending = IngestionStep(
            updates=updates,
            state=self._state(is_anew=False),
            frontier=SourceFrontier.at(self._position),
            status=self._status(),
            statistics=SourceStatistics(
                messages_received=self._messages + self._rows,
                bytes_received=self._size_bytes,
                updates_staged=count,
                offset_known=self._position,
                offset_committed=self._position,
                snapshot_committed=True,
                snapshot_records_known=self._rows if is_snapshot else None,
                snapshot_records_staged=self._rows if is_snapshot else None,
            ),
            errors=errors,
        )
        return self._pending

    def _state(self, *, is_anew: bool) -> str:
        tables = {export: asdict(table.state) for export, table in self._tables.items()}
        return json.dumps({"version": 1, "is_anew": is_anew, "tables": tables}, sort_keys=True)

    def _progress(self, copied: int | None) -> IngestionProgress:
        return IngestionProgress(
            SourceStatus("starting" if self._frontier is None else "running"),
            SourceStatistics(
                messages_received=self._messages + self._rows,
                bytes_received=self._size_bytes,
                snapshot_records_staged=copied,
            ),
        )

    def _status(self) -> SourceStatus:
        """The status once the step is committed: an error in the contents counts as stalled."""
        found = (table.error() for table in self._tables.values())
        cause = next((each for each in found if each is not None), None)
        ignored = {
            table.table.full_name: list(table.state.ignored)
            for table in self._tables.values()
            if table.state.ignored
        }
        details: dict[str, object] = {"columns left out": ignored} if ignored else {}
        if cause is None:
            return SourceStatus("running", None, details)
        error = user_error(
            "SLACKWATER_SOURCE_TABLE_ERROR", objectName=self._config.name, cause=cause
        )
        return SourceStatus("stalled", str(error), {**details, "condition": error.condition})


def _position(frontier: SourceFrontier | None) -> int:
    """The position before which everything was read."""
    return 0 if frontier is None else frontier.offset(0) or 0
