"""The FILES source: new files below a path are read once, each at one timestamp.

**When a file is taken.** A file is complete when its size and modification time have not changed
for SETTLE_MS: either it was last modified that long ago, or two polls that far apart saw it the
same. Writers that pause longer inside a file must write elsewhere (or under a name that begins
with ``.`` or ``_``) and rename the file into place. A file that changes while it is read is read
again later. Files are taken in the order of (modification time, path).

**Position.** A file's position is the number of files that were taken before it. The frontier
alone does not say which files these were, so the state does.

**State.** ``{"version": 1, "files": [[path, size, modified_ns, rows, skipped], ...]}``: what was
read; with ON ERROR PROPAGATE a file's first bad row follows, as line and reason. A file that was
read is never read again; when it changes or vanishes, the status says so.

**Bad rows.** ON ERROR STALL stops before their file, SKIP leaves them out and counts them, and
PROPAGATE makes them errors in the contents: the source goes on, reads fail, and the status says
why.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.repr.dataflow_error import DataflowError, DecodeError, error_rows
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.repr.relation import RelationDesc, with_diff
from slackwater.storage.discovery import FoundFile, find_files, in_order
from slackwater.storage.file_formats import BadRow, FileRows, Format, UnreadableFileError, read_rows
from slackwater.storage.ingestion import IngestionStep, SourceStatistics, SourceStatus
from slackwater.storage.source_time import SourceFrontier

SETTLE_MS = 500
STEP_BYTES = 64 * 1024 * 1024
"""A step takes files up to this size together, and at least one."""
_NAMED_IN_STATUS = 20


@dataclass(frozen=True, slots=True)
class FilesConfig:
    """`path` is absolute (see `local_path`); `pattern` is a glob on the file's name."""

    path: str
    format: Format
    pattern: str | None = None
    on_error: Literal["STALL", "SKIP", "PROPAGATE"] = "STALL"


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file whose rows are in the collection. `bad` is the first of its `skipped` bad rows."""

    found: FoundFile
    rows: int
    skipped: int
    bad: BadRow | None = None


@dataclass(frozen=True, slots=True)
class _Batch:
    """Files that one step takes, and why it stopped, if a file stopped it."""

    files: list[ReadFile] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    errors: list[tuple[DataflowError, int]] = field(default_factory=list)
    problem: SlackwaterError | None = None


class FilesIngestion:
    """The ingestion of a FILES source with one export."""

    def __init__(
        self,
        config: FilesConfig,
        export: str,
        desc: RelationDesc,
        state: str | None = None,
        *,
        has_begun: bool = False,
    ) -> None:
        """`has_begun`: its first contents, the files that were there at first, are committed."""
        self._config = config
        self._export = export
        self._desc = desc
        self._read = _decode(state)
        self._state = _encode(self._read)
        self._seen: dict[str, tuple[FoundFile, int]] = {}
        self._refused: dict[FoundFile, SlackwaterError] = {}
        self._reported: SourceStatus | None = None
        self._pending: dict[str, ReadFile] = {}
        self._has_begun = has_begun
        self._rows: dict[FoundFile, int | None] = {}

    def poll(self, now_ms: int) -> IngestionStep | None:
        found = found_files(self._config)
        fresh = [file for file in found if file.path not in self._read]
        settled = self._settled(fresh, now_ms)
        batch = self._take(settled)
        waiting = len(fresh) - len(batch.files)
        self._pending = {taken.found.path: taken for taken in batch.files}
        status = self._status(found, batch.problem, starting=waiting > 0)
        if not batch.files and status == self._reported:
            return None
        rows = sum(taken.rows for taken in batch.files)
        tables = [table for table in batch.tables if len(table)]
        known, staged = self._first_rows(fresh)
        state = self._state if not batch.files else _encode({**self._read, **self._pending})
        return IngestionStep(
            updates={self._export: with_diff(pa.concat_tables(tables))} if tables else {},
            state=state,
            frontier=SourceFrontier.at(len(self._read) + len(batch.files)),
            status=status,
            statistics=SourceStatistics(
                messages_received=len(batch.files),
                bytes_received=sum(taken.found.size_bytes for taken in batch.files),
                updates_staged=rows + len(batch.errors),
                rows_skipped=sum(taken.skipped for taken in batch.files) - len(batch.errors),
                offset_known=len(self._read) + len(fresh),
                offset_committed=len(self._read) + len(batch.files),
                snapshot_committed=status.status != "starting",
                snapshot_records_known=known,
                snapshot_records_staged=staged,
            ),
            errors={self._export: error_rows(batch.errors)} if batch.errors else {},
        )

    def committed(self, step: IngestionStep) -> None:
        self._read.update(self._pending)
        self._pending = {}
        self._state = step.state
        self._reported = step.status
        if step.statistics.snapshot_committed:
            self._has_begun = True
            self._rows.clear()

    def _first_rows(self, fresh: list[FoundFile]) -> tuple[int | None, int | None]:
        """The rows of the first contents, as far as all files say how many they have, and those
        that have been read; None after the first contents."""
        if self._has_begun:
            return None, None
        staged = sum(each.rows for each in (*self._read.values(), *self._pending.values()))
        left = [self._rows_of(file) for file in fresh if file.path not in self._pending]
        rows = [each for each in left if each is not None]
        return staged + sum(rows) if len(rows) == len(left) else None, staged

    def _rows_of(self, file: FoundFile) -> int | None:
        """The rows of a file that says how many it has."""
        if file not in self._rows:
            self._rows[file] = count_rows(file, self._config.format)
        return self._rows[file]

    def _settled(self, fresh: list[FoundFile], now_ms: int) -> list[FoundFile]:
        settled: list[FoundFile] = []
        seen: dict[str, tuple[FoundFile, int]] = {}
        for file in fresh:
            before, since_ms = self._seen.get(file.path, (file, now_ms))
            if before != file:
                since_ms = now_ms
            seen[file.path] = (file, since_ms)
            quiet_since_ms = min(since_ms, file.modified_ns // 1_000_000)
            if now_ms - quiet_since_ms >= SETTLE_MS:
                settled.append(file)
        self._seen = seen
        return in_order(settled)

    def _take(self, settled: Sequence[FoundFile]) -> _Batch:
        batch = _Batch()
        size = 0
        for file in settled:
            if batch.files and size + file.size_bytes > STEP_BYTES:
                break
            size += file.size_bytes
            outcome = self._outcome(file)
            if isinstance(outcome, SlackwaterError):
                return replace(batch, problem=outcome)
            if outcome is None:
                continue
            rows = outcome
            batch.tables.append(rows.table)
            propagated = rows.bad if self._config.on_error == "PROPAGATE" else ()
            batch.errors.extend((_decode_error(file, row), 1) for row in propagated)
            first = propagated[0] if propagated else None
            batch.files.append(ReadFile(file, len(rows.table), len(rows.bad), first))
        return batch

    def _outcome(self, file: FoundFile) -> FileRows | SlackwaterError | None:
        """The file's rows, why it is refused, or None when it is to be read at another poll."""
        if file in self._refused:
            return self._refused[file]
        try:
            rows = read_file(file, self._config.format, self._desc)
        except SlackwaterError as error:
            return error
        if rows is None or not rows.bad or self._config.on_error != "STALL":
            return rows
        self._refused = {file: bad_row(file.path, rows.bad[0])}
        return self._refused[file]

    def _status(
        self, found: list[FoundFile], problem: SlackwaterError | None, *, starting: bool
    ) -> SourceStatus:
        changed, vanished = self._differences(found)
        problem = problem or self._held()
        error: SlackwaterError | None = problem
        if error is None and (changed or vanished):
            what = "was changed" if changed else "vanished"
            first = (changed or vanished)[0]
            error = user_error("SLACKWATER_SOURCE_FILE_CHANGED", file=first, change=what)
        details: dict[str, object] = {}
        if changed:
            details["changed"] = changed[:_NAMED_IN_STATUS]
        if vanished:
            details["vanished"] = vanished[:_NAMED_IN_STATUS]
        if error is not None:
            details["condition"] = error.condition
            details.update({k: v for k, v in error.parameters.items() if k in ("file", "line")})
        initial = self._reported is None or self._reported.status == "starting"
        if problem is not None:
            return SourceStatus("stalled", str(problem), details)
        name: Literal["starting", "running"] = "starting" if starting and initial else "running"
        return SourceStatus(name, None if error is None else str(error), details)

    def _held(self) -> SlackwaterError | None:
        """The first error that is in the collection: the source counts as stalled by it."""
        for read in (*self._read.values(), *self._pending.values()):
            if read.bad is not None:
                return bad_row(read.found.path, read.bad)
        return None

    def _differences(self, found: list[FoundFile]) -> tuple[list[str], list[str]]:
        present = {file.path: file for file in found}
        changed = [
            path
            for path, read in self._read.items()
            if path in present and present[path] != read.found
        ]
        vanished = [path for path in self._read if path not in present]
        return sorted(changed), sorted(vanished)


def _decode_error(file: FoundFile, row: BadRow) -> DecodeError:
    return DecodeError(f"{file.path}, line {row.line}", row.reason)


def bad_row(path: str, row: BadRow) -> SlackwaterError:
    """The error for the malformed `row` of the file `path`."""
    return user_error("SLACKWATER_SOURCE_BAD_ROW", file=path, line=str(row.line), reason=row.reason)


def found_files(config: FilesConfig) -> list[FoundFile]:
    """The files that the source's path names now. Raises SLACKWATER_SOURCE_FILE_UNREADABLE."""
    try:
        return find_files(config.path, config.pattern)
    except OSError as error:
        raise unreadable(error.filename or config.path, error) from None


def unreadable(path: str, error: Exception) -> SlackwaterError:
    """The error for a file or a folder that cannot be read, for that reason."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return user_error("SLACKWATER_SOURCE_FILE_UNREADABLE", file=path, reason=reason)


def read_file(file: FoundFile, form: Format, desc: RelationDesc) -> FileRows | None:
    """The rows of `file`, or None when it is not any more the file that was found.

    Raises SLACKWATER_SOURCE_FILE_UNREADABLE.
    """
    data = read_bytes(file)
    if data is None:
        return None
    try:
        return read_rows(data, form, desc, packed=file.path.endswith(".gz"))
    except UnreadableFileError as error:
        raise unreadable(file.path, error) from None


def count_rows(file: FoundFile, form: Format) -> int | None:
    """The number of rows that the footer of a Parquet file says; None: nobody knows it."""
    if form.kind != "PARQUET":
        return None
    try:
        return int(pq.read_metadata(file.path).num_rows)
    except (OSError, pa.ArrowException):
        return None


def read_bytes(file: FoundFile) -> bytes | None:
    """The contents of `file`, or None when it changed since it was found or during the read.

    Raises SLACKWATER_SOURCE_FILE_UNREADABLE.
    """
    try:
        with open(file.path, "rb") as handle:
            data = handle.read()
            after = os.fstat(handle.fileno())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(file.path, error) from None
    same = (after.st_size, after.st_mtime_ns) == (file.size_bytes, file.modified_ns)
    return data if same and len(data) == file.size_bytes else None


def _decode(state: str | None) -> dict[str, ReadFile]:
    if state is None:
        return {}
    return {
        path: ReadFile(
            FoundFile(path, size, modified_ns), rows, skipped, BadRow(*bad) if bad else None
        )
        for path, size, modified_ns, rows, skipped, *bad in json.loads(state)["files"]
    }


def _encode(read: dict[str, ReadFile]) -> str:
    files = [
        [r.found.path, r.found.size_bytes, r.found.modified_ns, r.rows, r.skipped]
        + ([] if r.bad is None else [r.bad.line, r.bad.reason])
        for r in read.values()
    ]
    return json.dumps({"version": 1, "files": files}, separators=(",", ":"))
