"""The ingestion of a table of a lake: what it has in one version, then version after version.

The first step is the contents of one version, in one commit. Each later step takes the versions
after it, whole and in their order, several small ones together: so the collection has at each time
what the table has in one version.

**State.** The version that was read, in which columns, and what has become of the table's columns
since the source was created. The frontier counts versions, from 0: that before version n was read
is offset n.

**What may pass and what not.** A table that cannot be reached is asked again. A version or a file
that is gone, and a table that is another one, stop the source: what it has stays as it is, until
RESNAPSHOT reads the last version and commits the difference. So does a table whose columns do not
fit any more, which is an error of the contents: nobody can read them.

**More columns.** A source that has got columns reads the last version again, as for RESNAPSHOT,
before anything else.

Source: spec controllers 5.1 to 5.5; docs/decisions 0079.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.repr.dataflow_error import DataflowError, DecodeError, error_rows
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.repr.relation import DIFF_COLUMN, RelationDesc
from slackwater.storage.ingestion import (
    IngestionProgress,
    IngestionStep,
    Resnapshot,
    SourceStatistics,
    SourceStatus,
)
from slackwater.storage.lake.history import (
    TableColumn,
    TableHistory,
    TableVersion,
    VersionChanges,
)
from slackwater.storage.lake.source_columns import added, difference
from slackwater.storage.lake.step_rows import (
    DeletedValues,
    NotThere,
    SourceCollection,
    StepRows,
    any_of,
    conformed,
    conformed_values,
)
from slackwater.storage.pieces import PIECE_BYTES
from slackwater.storage.source_time import SourceFrontier

STEP_BYTES = 64 * 1024 * 1024
"""A step after the first takes versions of about so many bytes together, and at least one."""


@dataclass(frozen=True, slots=True)
class LakeTableConfig:
    """The table of a source. `shown` is how messages call it, `export` the name of its collection.

    `columns` are those that the table had when the source was created, `desc` those of the source.
    `step_bytes` bounds the files of versions that are a step together, and `piece_bytes` the rows
    that are in memory.
    """

    name: str
    shown: str
    export: str
    desc: RelationDesc
    columns: Sequence[TableColumn]
    start: int | None = None
    step_bytes: int = STEP_BYTES
    piece_bytes: int = PIECE_BYTES


class LakeUpstream(Protocol):
    """The way to the table of a source."""

    def history(self) -> TableHistory:
        """The table, by the connection as it is now. Raises what the connection raises."""
        ...

    def forget(self) -> None:
        """Ends the clients: the next question begins anew."""
        ...


@dataclass(frozen=True, slots=True)
class LakeState:
    """The durable state: the version that was read, and what is wrong with those after it.

    `offset` is that of the frontier. `columns` are those that the contents have, by their
    identities, `ignored` such that the table got later, by their names, and `broken` is the reason
    why nothing of it is read any more.
    """

    at: TableVersion
    offset: int
    columns: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    broken: str | None = None

    def to_json(self) -> str:
        return json.dumps({"version": 1, **asdict(self)}, sort_keys=True)

    @staticmethod
    def from_json(state: str) -> LakeState:
        found = json.loads(state)
        return LakeState(
            TableVersion(**found["at"]),
            found["offset"],
            tuple(found["columns"]),
            tuple(found["ignored"]),
            found["broken"],
        )


_Work = Generator[int, None, IngestionStep | None]
"""A step that is being made. It gives how many bytes were read between."""


@dataclass(slots=True)
class _Read:
    """The rows that were read for a step so far, and their size."""

    rows: int = 0
    size_bytes: int = 0

    def count(self, piece: pa.Table) -> int:
        self.rows += piece.num_rows
        size = int(piece.nbytes)
        self.size_bytes += size
        return size


class LakeIngestion:
    """The ingestion of one table.

    Promise: at each time the collection has what the table has in one version, and later times have
    that or a later one; or, while it has an error, what it had before.
    """

    def __init__(
        self,
        config: LakeTableConfig,
        upstream: LakeUpstream,
        collection: SourceCollection,
        state: str | None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`state` None: nothing was read. `check` raises `StepSuperseded` once the source is
        another one: this ingestion reads nothing more then."""
        self._config = config
        self._upstream = upstream
        self._collection = collection
        self._state = None if state is None else LakeState.from_json(state)
        self._columns = tuple(each.identity for each in config.columns)
        self._check = check
        self._work: _Work | None = None
        self._read = _Read()
        self._known_rows: int | None = None
        self._pending: IngestionStep | None = None
        self._reported: SourceStatus | None = None
        self._wanted: list[Resnapshot] = []
        self._answered: list[Resnapshot] = []

    def resnapshot(self) -> Resnapshot:
        """Reads the last version, and commits the difference to what there is.

        Any thread may call this.
        """
        asked = Resnapshot()
        self._wanted.append(asked)
        return asked

    def poll(self, now_ms: int) -> IngestionStep | IngestionProgress | None:
        self._check()
        if self._pending is not None:
            return self._pending
        try:
            if self._work is None:
                self._read, self._known_rows = _Read(), None
                self._work = self._begun()
            before = self._read.size_bytes
            while self._read.size_bytes - before <= self._config.step_bytes:
                try:
                    next(self._work)
                except StopIteration as done:
                    self._work, self._pending = None, done.value
                    return self._pending
            return self._progress()
        except BaseException:
            # What was read and no step has is read again, from where steps are.
            self.close()
            raise

    def committed(self, step: IngestionStep) -> None:
        self._state = LakeState.from_json(step.state)
        self._reported, self._pending = step.status, None
        for asked in self._answered:
            asked.done.set()
        self._answered = []

    def close(self) -> None:
        self._work = self._pending = None
        # In place: another thread may add to them meanwhile.
        self._wanted[:0] = self._answered
        self._answered = []
        self._upstream.forget()

    def _begun(self) -> _Work:
        state = self._state
        asked = list(self._wanted)  # Others may come meanwhile, behind these.
        self._answered += asked
        del self._wanted[: len(asked)]
        if state is None:
            return self._first(None if asked else self._config.start)
        if asked or state.columns != self._columns:
            return self._again(state)
        if state.broken is not None:
            return self._stopped(state)
        return self._following(state)

    def _first(self, start: int | None) -> _Work:
        """The contents of a version, when there are none yet; None: of the last one."""
        history = self._upstream.history()
        version = history.newest() if start is None else history.at(start)
        rows = self._rows()
        state = self._arrived(history, version, version.number + 1)
        if state.broken is None:
            yield from self._contents(history, version, rows)
        return self._step(state, rows, newest=history.last_number(), is_snapshot=True)

    def _again(self, before: LakeState) -> _Work:
        """The difference between the last version and what is there."""
        history = self._upstream.history()
        version = history.newest()
        is_later = version.number >= before.at.number and version.table == before.at.table
        offset = max(before.offset, before.offset + version.number - before.at.number)
        # Of a table that was made anew the first version counts as the next.
        state = self._arrived(history, version, offset if is_later else before.offset + 1)
        rows = self._rows()
        if state.broken is None:
            rows.take_back()
            yield from self._contents(history, version, rows)
        retracted = [(error, -1) for error in self._collection.errors()]
        return self._step(
            state, rows, errors=retracted, newest=version.number, is_snapshot=True, is_anew=True
        )

    def _arrived(self, history: TableHistory, version: TableVersion, offset: int) -> LakeState:
        columns = history.columns(version)
        broken = difference(self._config.columns, columns)
        return LakeState(
            version, offset, self._columns, added(self._config.columns, columns), broken
        )

    def _contents(
        self, history: TableHistory, version: TableVersion, rows: StepRows
    ) -> Iterator[int]:
        self._known_rows = history.known_rows(version)
        for piece in history.contents(version):
            rows.add(self._conformed(piece, has_diff=False))
            yield self._read.count(piece)

    def _stopped(self, state: LakeState) -> _Work:
        """Nothing is read until RESNAPSHOT: only the status is told."""
        if self._reported is not None:
            return None
        return self._step(state, self._rows(), newest=state.at.number)
        yield

    def _following(self, before: LakeState) -> _Work:
        """The versions after the last one that was read."""
        history = self._upstream.history()
        rows = self._rows()
        state, taken_bytes = before, 0
        newest: int | None = None
        for each in history.after(before.at):
            is_first = state is before
            if not is_first and taken_bytes + each.size_bytes > self._config.step_bytes:
                newest = history.last_number()
                break
            broken = difference(self._config.columns, each.columns)
            if broken is not None:
                state = replace(state, broken=broken)
                break
            deleted = self._deleted(each)
            if deleted and not is_first:
                # All rows before it have to be durable, so that they are found.
                newest = history.last_number()
                break
            yield from self._version(each, deleted, rows)
            taken_bytes += each.size_bytes
            offset = state.offset + each.version.number - state.at.number
            ignored = added(self._config.columns, each.columns)
            state = replace(state, at=each.version, offset=offset, ignored=ignored)
        if state is before and self._reported is not None:
            return None
        return self._step(state, rows, newest=state.at.number if newest is None else newest)

    def _version(
        self, changes: VersionChanges, deleted: Sequence[DeletedValues], rows: StepRows
    ) -> Iterator[int]:
        if deleted:
            rows.delete(deleted)
        for piece in changes.rows:
            own = self._conformed(piece, has_diff=True)
            if deleted:
                # Those that go by their values have gone already.
                goes = pc.less(own.column(DIFF_COLUMN), 0)
                own = own.filter(pc.invert(pc.and_(goes, any_of(own, deleted))))
            rows.add(own)
            yield self._read.count(piece)

    def _rows(self) -> StepRows:
        return StepRows(self._collection, self._config.piece_bytes)

    def _deleted(self, changes: VersionChanges) -> Sequence[DeletedValues]:
        found = []
        for values in changes.deleted:
            if values.num_rows == 0:
                continue
            try:
                found.append(conformed_values(values, self._config.desc))
            except KeyError as lacking:
                raise self._history_lost(
                    f"version {changes.version.number} deletes by the column {lacking.args[0]}, "
                    "which the source does not have"
                ) from None
            self._read.count(values)
        return found

    def _conformed(self, piece: pa.Table, *, has_diff: bool) -> pa.Table:
        try:
            return conformed(piece, self._config.desc, has_diff=has_diff)
        except (pa.ArrowException, KeyError) as error:
            raise unreadable(self._config.name, self._config.shown, str(error)) from None

    def _step(
        self,
        state: LakeState,
        rows: StepRows,
        *,
        newest: int,
        errors: Sequence[tuple[DataflowError, int]] = (),
        is_snapshot: bool = False,
        is_anew: bool = False,
    ) -> IngestionStep:
        try:
            changes = rows.changes()
        except NotThere:
            raise self._history_lost(
                f"of the rows that go until version {state.at.number} one is not there"
            ) from None
        was_broken = self._state is not None and self._state.broken is not None
        told = list(errors)
        if state.broken is not None and (is_anew or not was_broken):
            told.append((DecodeError(self._config.shown, state.broken), 1))
        ahead = max(0, newest - state.at.number)
        return IngestionStep(
            updates={} if changes is None else {self._config.export: changes},
            state=state.to_json(),
            frontier=SourceFrontier.at(state.offset),
            status=self._status(state),
            statistics=SourceStatistics(
                messages_received=self._read.rows,
                bytes_received=self._read.size_bytes,
                updates_staged=(0 if changes is None else changes.num_rows) + len(told),
                offset_known=state.offset + ahead,
                offset_committed=state.offset,
                snapshot_committed=True,
                snapshot_records_known=self._read.rows if is_snapshot else None,
                snapshot_records_staged=self._read.rows if is_snapshot else None,
            ),
            errors={self._config.export: error_rows(told)} if told else {},
        )

    def _progress(self) -> IngestionProgress:
        is_first = self._state is None
        reads_all = is_first or bool(self._answered)
        known = self._known_rows
        return IngestionProgress(
            SourceStatus("starting") if is_first else self._reported or SourceStatus("running"),
            SourceStatistics(
                messages_received=self._read.rows,
                bytes_received=self._read.size_bytes,
                snapshot_records_known=known and max(known, self._read.rows) if reads_all else None,
                snapshot_records_staged=self._read.rows if reads_all else None,
            ),
        )

    def _status(self, state: LakeState) -> SourceStatus:
        """The status once the step is committed: an error in the contents counts as stalled."""
        details: dict[str, object] = {}
        if state.ignored:
            details["columns left out"] = list(state.ignored)
        if state.broken is None:
            return SourceStatus("running", None, details)
        error = user_error(
            "SLACKWATER_SOURCE_TABLE_CHANGED",
            objectName=self._config.name,
            table=self._config.shown,
            reason=state.broken,
        )
        return SourceStatus("stalled", str(error), {**details, "condition": error.condition})

    def _history_lost(self, what: str) -> SlackwaterError:
        return history_lost(self._config.name, what)


def history_lost(object_name: str, what: str) -> SlackwaterError:
    """SLACKWATER_SOURCE_HISTORY_LOST for a source of a table of a lake."""
    return user_error(
        "SLACKWATER_SOURCE_HISTORY_LOST",
        objectName=object_name,
        what=what,
        advice=f"ALTER SOURCE {object_name} RESNAPSHOT reads the last version of the table, and "
        "commits the difference to what there is.",
    )


def unreadable(object_name: str, shown: str, reason: str) -> SlackwaterError:
    """SLACKWATER_SOURCE_TABLE_UNREADABLE for a source of a table of a lake."""
    return user_error(
        "SLACKWATER_SOURCE_TABLE_UNREADABLE",
        objectName=object_name,
        table=shown,
        reason=" ".join(reason.split()),
    )


def replaced(object_name: str, shown: str, before: str, now: str) -> SlackwaterError:
    """SLACKWATER_SOURCE_REPLACED for a source of a table of a lake."""
    return user_error(
        "SLACKWATER_SOURCE_REPLACED",
        objectName=object_name,
        what=shown,
        before=before,
        now=now,
        advice=f"ALTER SOURCE {object_name} RESNAPSHOT goes on with the one that is there now, and "
        "commits the difference to what there is.",
    )
