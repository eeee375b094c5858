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

**Tables** come and go while the source runs. One that comes later is copied beside it (`copying`),
and begins with the step at whose position its copy is. So are tables that are read anew alone,
whose contents go on meanwhile. A copy that fails is begun again later, and holds up no table.

Source: spec controllers 5.1 to 5.5; docs/decisions 0072, 0078.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Protocol

import pyarrow as pa

from slackwater.repr.dataflow_error import error_rows
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.storage.copying import Room
from slackwater.storage.ingestion import (
    IngestionProgress,
    IngestionStep,
    Resnapshot,
    SourceStatistics,
    SourceStatus,
)
from slackwater.storage.pieces import StagedRows
from slackwater.storage.postgres.changes import TableChanges, TableState
from slackwater.storage.postgres.copying import CopiedTable, Copy, FollowedTable, copied, readers
from slackwater.storage.postgres.following import Follower
from slackwater.storage.postgres.replication import (
    Replication,
    RetainedLog,
    ServerIdentity,
    SlotState,
    Upstream,
    refuse_another,
)
from slackwater.storage.source_time import SourceFrontier

STEP_MESSAGES = 200_000
STEP_BYTES = 64 * 1024 * 1024
"""A step after the first takes about so much, or less, unless one transaction is larger."""
READ_MESSAGES = 20_000
WAIT_MS = 200
CHECK_MS = 10_000
"""The time between two looks at the publication, and between two signs of life."""
RETAINED_BYTES = 1024**3
"""It is told when the server keeps so much of its log for a source, or more."""


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
            added=tuple(each.get("added", ())),
        )
        for export, each in found.items()
    }


class PublicationTables(Protocol):
    """The tables of a source, by the names of their exports, as the catalog has them now."""

    def names(self) -> Collection[str]:
        """The tables that there are."""
        ...

    def added(self) -> Mapping[str, Collection[str]]:
        """The columns that tables got later; tables without such are left out."""
        ...

    def found(self, name: str) -> FollowedTable | None:
        """A table with what its collection has; None: it was dropped meanwhile."""
        ...

    def upstream(self) -> Upstream:
        """The server for copies, with a slot that goes with its connection."""
        ...


CopiedRows = tuple[int, int | None]
"""The rows that were copied so far, and about how many there are, if the server knows."""


@dataclass(slots=True)
class _Again:
    """A request to read tables again; None: all of them. `is_copied`: a copy is on its way."""

    tables: frozenset[str] | None
    done: Resnapshot
    is_copied: bool = False


class PostgresIngestion:
    """The ingestion of the tables of one publication.

    Promise: at each time every table has what it has at one position of the upstream's log, the
    same for all tables, and never a part of a transaction; a table has nothing until it has that. A
    table that cannot be followed has an error, and holds up no other.
    """

    def __init__(
        self,
        config: PostgresConfig,
        upstream: Upstream,
        tables: PublicationTables,
        frontier: SourceFrontier | None,
        state: str | None,
    ) -> None:
        """`frontier` None: nothing was read."""
        self._config = config
        self._upstream = upstream
        self._catalog = tables
        self._tables: dict[str, TableChanges] = {}
        self._joined: dict[str, CopiedTable] = {}
        self._later: set[str] = set()
        self._frontier = frontier
        self._is_anew = state is not None and bool(json.loads(state)["is_anew"])
        self._last_state = state
        self._again: list[_Again] = []
        self._anew: list[_Again] = []
        self._replication: Replication | None = None
        self._copying: Iterator[pa.Table] | None = None
        self._copy: Copy | None = None
        self._copy_error: SlackwaterError | None = None
        self._told_error: SlackwaterError | None = None
        self._copy_after_ms = 0
        self._last_step = (0, 0)
        self._checked_ms = self._told_ms = self._committed_ms = 0
        self._pending: IngestionStep | None = None
        self._reported: SourceStatus | None = None
        self.retained: RetainedLog | None = None
        self.retained_bytes: int | None = None
        """The bytes of its log that the server kept when it was last asked."""
        self._follower = Follower(_position(frontier))
        self._rows = self._copied_bytes = 0
        self._known_rows: int | None = None

    def resnapshot(self, tables: Collection[str] | None = None) -> Resnapshot:
        """Copies tables again, and commits the difference to what there is.

        None: all of them; of none it is done once no table lacks columns. Any thread may call this.
        """
        asked = _Again(None if tables is None else frozenset(tables), Resnapshot())
        self._again.append(asked)
        return asked.done

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
        self._follow_catalog()
        wants_all = any(each.tables is None for each in self._again)
        if wants_all and self._frontier is not None and not self._is_anew:
            return self._intention()
        replication = self._connected(now_ms)
        if self._frontier is None or self._is_anew:
            return self._snapshot(replication)
        self._read(replication)
        if self._follower.in_transaction:
            return self._progress(self._copy_rows())
        if now_ms - self._checked_ms >= CHECK_MS:
            self._look_at(replication)
            self._note(replication.slot(), now_ms)
            self._checked_ms = now_ms
        self._read_copy(now_ms)
        step = self._streamed(now_ms)
        if step is None and now_ms - self._told_ms >= CHECK_MS:
            replication.confirm(_position(self._frontier))
            self._told_ms = now_ms
        if step is None and self._copy is not None:
            waits = self._copy.is_ahead_of(self._follower.position)
            return None if waits else self._progress(self._copy_rows())
        return step

    def _follow_catalog(self) -> None:
        """Goes on with the tables that there are now."""
        names = self._catalog.names()
        self._tables = {name: each for name, each in self._tables.items() if name in names}
        if self._copy is not None:
            self._copy.keep(names)
        lacking = [name for name in names if name not in self._tables]
        if not lacking or self._copying is not None:
            return
        states = states_of(self._last_state)
        for name in lacking:
            if name not in states and self._frontier is not None:
                continue
            found = self._catalog.found(name)
            if found is not None:
                self._tables[name] = found.changes(states.get(name))
                if found.is_later:
                    self._later.add(name)

    def _read_copy(self, now_ms: int) -> None:
        """Reads on for tables that are copied; when they have all that others have, they join."""
        if self._copy is None and now_ms >= self._copy_after_ms:
            self._copy = self._begun_copy()
        if self._copy is None:
            return
        try:
            room = Room().beside(*self._last_step)
            if self._copy.read(self._follower.position, room):
                joined = self._copy.tables
                self._end_copy()
                self._joined = joined
                self._tables.update({name: each.changes for name, each in joined.items()})
                self._copy_error = None
        except SlackwaterError as error:
            self._abandon_copy()
            self._copy_error, self._copy_after_ms = error, now_ms + CHECK_MS

    def _begun_copy(self) -> Copy | None:
        """The copy of the tables that lack their contents or columns, or are to be read again.

        None: there are none.
        """
        names = self._catalog.names()
        again = self._lacking_columns()
        for asked in self._again:
            if asked.tables is not None:
                again |= asked.tables
                asked.is_copied = True
        wanted = {name: name in self._tables for name in names}
        tables = {}
        for name, is_there in wanted.items():
            if is_there and name not in again:
                continue
            found = self._catalog.found(name)
            if found is not None:
                tables[name] = CopiedTable(found, replaces=is_there)
                if found.is_later and not is_there:
                    self._later.add(name)
        if not tables:
            self._copy_error = None
            self._answer_copies()
            return None
        return Copy(tables, self._catalog.upstream(), self._refuse_another)

    def _lacking_columns(self) -> set[str]:
        """The tables that are followed without columns that the catalog has of them."""
        return {
            name
            for name, added in self._catalog.added().items()
            if name in self._tables
            and self._tables[name].state.broken is None
            and not set(added) <= set(self._tables[name].state.added)
        }

    def _answer_copies(self) -> None:
        """The tables that a copy was asked for are durable."""
        for asked in [each for each in self._again if each.is_copied]:
            self._again.remove(asked)
            asked.done.done.set()

    def _end_copy(self) -> None:
        if self._copy is not None:
            self._copy.close()
            self._copy = None

    def _abandon_copy(self) -> None:
        """The copy begins again, with all that is wanted then."""
        self._end_copy()
        for asked in self._again:
            asked.is_copied = False

    def committed(self, step: IngestionStep) -> None:
        begins_anew = self._frontier is not None and not self._is_anew
        self._is_anew = bool(json.loads(step.state)["is_anew"])
        self._last_state = step.state
        if begins_anew and self._is_anew:
            self.close()
            return
        self._frontier = step.frontier
        self._reported, self._told_error = step.status, self._copy_error
        self._pending = None
        for name, table in self._tables.items():
            if name not in self._joined:
                table.committed()
        for each in self._joined.values():
            each.committed()
        if self._joined:
            self._answer_copies()
        self._joined = {}
        self._later.difference_update(self._tables)
        self._last_step = (self._follower.messages, self._follower.size_bytes)
        was_snapshot, self._copying = self._copying is not None, None
        self._rows = self._copied_bytes = 0
        for asked in self._anew:
            asked.done.done.set()
        self._anew = []
        self._follower.begin_step()
        if self._replication is None:
            return
        try:
            if was_snapshot:
                self._start(self._replication)
            self._replication.confirm(self._follower.position)
        except SlackwaterError:
            self.close()  # The next poll connects, or says why it cannot.

    def _start(self, replication: Replication) -> None:
        """Lets the log come from the frontier on."""
        self._follower = Follower(_position(self._frontier))
        replication.start(self._follower.position)

    def close(self) -> None:
        self._replication = None
        self._upstream.forget()
        self._abandon_copy()
        self._pending = None
        self._forget_step()

    def _forget_step(self) -> None:
        """Nothing of the step counts: it is read again."""
        for name in self._joined:
            self._tables.pop(name, None)
        for asked in self._again:
            asked.is_copied = False
        self._joined = {}
        for table in self._tables.values():
            table.forget()
        self._follower = Follower(_position(self._frontier))
        self._rows = self._copied_bytes = 0
        self._copying = None

    def _connected(self, now_ms: int) -> Replication:
        """The server, which is the one that the source was created for, and sends what is next.

        Raises SLACKWATER_SOURCE_REPLACED, SLACKWATER_SOURCE_HISTORY_LOST.
        """
        replication = self._upstream.replication()
        if replication is self._replication:
            return replication
        if self._replication is not None:
            # The connection was altered: what the old one has sent is sent again.
            self._abandon_copy()
            self._forget_step()
        self._refuse_another(replication)
        if self._frontier is not None and not self._is_anew:
            slot = replication.slot()
            self._note(slot, now_ms)
            self._refuse_lost(slot)
            self._look_at(replication)
            self._start(replication)
            self._checked_ms = self._told_ms = now_ms
        self._replication = replication
        return replication

    def _refuse_another(self, replication: Replication) -> None:
        refuse_another(self._config.name, self._config.identity, replication.identity())

    def _note(self, slot: SlotState | None, now_ms: int) -> None:
        """Notes how much of its log the server keeps, and since when that is much."""
        self.retained_bytes = None if slot is None else slot.retained_bytes
        if slot is None or slot.retained_bytes < RETAINED_BYTES:
            self.retained = None
        else:
            since_ms = now_ms if self.retained is None else self.retained.since_ms
            self.retained = RetainedLog(slot.retained_bytes, since_ms)

    def _refuse_lost(self, slot: SlotState | None) -> None:
        if slot is None:
            raise self._history_lost("is gone")
        if slot.is_lost:
            raise self._history_lost("has lost a part of the log")
        if slot.confirmed > _position(self._frontier):
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
                asked = list(self._again)  # Others may come meanwhile, behind these.
                self._anew += asked
                del self._again[: len(asked)]
            position = replication.create_slot()
            if position is None:
                return self._progress((0, None))
            self._follower = Follower(position)
            is_first = self._frontier is None
            if not is_first:
                self._read_with_all_columns()
            self._known_rows = replication.known_rows([t.table.oid for t in self._tables.values()])
            self._copying = copied(replication, list(self._tables.values()), is_first=is_first)
        before = self._copied_bytes
        for piece in self._copying:
            self._rows += piece.num_rows
            self._copied_bytes += piece.nbytes
            if self._copied_bytes - before > STEP_BYTES:
                return self._progress((self._rows, self._known_rows))
        return self._step(is_snapshot=True)

    def _read_with_all_columns(self) -> None:
        """Tables that are read anew have all columns that the catalog has of them."""
        found = {name: self._catalog.found(name) for name in self._tables}
        self._tables = {
            name: each.anew(self._tables[name].state)
            for name, each in found.items()
            if each is not None
        }

    def _is_full(self) -> bool:
        follower = self._follower
        return follower.messages >= STEP_MESSAGES or follower.size_bytes >= STEP_BYTES

    def _read(self, replication: Replication) -> None:
        """Reads what has come. A step ends between transactions."""
        follower, by_oid = self._follower, readers(self._tables.values())
        while follower.in_transaction or not self._is_full():
            received = replication.read(READ_MESSAGES, WAIT_MS if follower.in_transaction else 0)
            if not received:
                return
            for each in received:
                follower.take(each, by_oid)

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
        is_due = self._is_full() or now_ms - self._committed_ms >= CHECK_MS
        is_changed = any(table.is_changed for table in self._tables.values())
        if self._follower.messages or self._joined or is_changed:
            step = self._step(is_snapshot=False)
            if step.updates or step.errors or step.state != self._last_state or self._joined:
                self._committed_ms = now_ms
                return step
            self._pending = None
        if self._frontier is None:
            raise AssertionError("a source without a snapshot has no stream")
        has_moved = self._follower.position > _position(self._frontier)
        is_told = self._reported is not None and self._told_error is self._copy_error
        if not is_told or (is_due and has_moved):
            self._committed_ms = now_ms
            return self._step(is_snapshot=False)
        return None

    def _step(self, *, is_snapshot: bool) -> IngestionStep:
        updates: dict[str, pa.Table | StagedRows] = {}
        errors: dict[str, pa.Table] = {}
        count = 0
        for export, table in self._tables.items():
            joined = self._joined.get(export)
            changed = table.changes() if joined is None else joined.contents()
            count += changed.count
            if changed.rows is not None:
                updates[export] = changed.rows
            if changed.errors:
                errors[export] = error_rows(list(changed.errors))
        begun = states_of(self._last_state)
        later = (name for name in self._tables if name in self._later and name not in begun)
        follower = self._follower
        self._pending = IngestionStep(
            updates=updates,
            state=self._state(is_anew=False),
            frontier=SourceFrontier.at(follower.position),
            status=self._status(),
            statistics=SourceStatistics(
                messages_received=self._follower.messages + self._rows,
                bytes_received=self._follower.size_bytes + self._copied_bytes,
                updates_staged=count,
                offset_known=follower.position,
                offset_committed=follower.position,
                snapshot_committed=True,
                snapshot_records_known=self._rows if is_snapshot else None,
                snapshot_records_staged=self._rows if is_snapshot else None,
                begun=tuple(later),
            ),
            errors=errors,
        )
        return self._pending

    def _state(self, *, is_anew: bool) -> str:
        tables = {export: asdict(table.state) for export, table in self._tables.items()}
        return json.dumps({"version": 1, "is_anew": is_anew, "tables": tables}, sort_keys=True)

    def _copy_rows(self) -> CopiedRows | None:
        """The progress of the tables that are copied while the source runs, if there are any."""
        copy = self._copy
        return None if copy is None else (copy.rows, copy.known_rows)

    def _progress(self, copied: CopiedRows | None) -> IngestionProgress:
        rows, known = copied or (None, None)
        return IngestionProgress(
            SourceStatus("starting" if self._frontier is None else "running"),
            SourceStatistics(
                messages_received=self._follower.messages + self._rows,
                bytes_received=self._follower.size_bytes + self._copied_bytes,
                snapshot_records_known=None if known is None else max(known, rows or 0),
                snapshot_records_staged=rows,
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
        error = self._copy_error
        if cause is not None:
            error = user_error(
                "SLACKWATER_SOURCE_TABLE_ERROR", objectName=self._config.name, cause=cause
            )
        if error is None:
            return SourceStatus("running", None, details)
        return SourceStatus("stalled", str(error), {**details, "condition": error.condition})


def _position(frontier: SourceFrontier | None) -> int:
    """The position before which everything was read."""
    return 0 if frontier is None else frontier.offset(0) or 0
