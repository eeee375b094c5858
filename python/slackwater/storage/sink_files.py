"""The FILES sink: one numbered set of files for each committed range of time.

The data files of a range are written and synced first, then ``manifest.json`` is replaced
atomically; that replacement is the commit. The manifest is the only authority: files that it does
not name are left over from an attempt that did not commit, and are overwritten when the same
range is written again. A reader that follows the manifest sees each update exactly once.

Source: spec coordinator 6.5, surface 4.1.
"""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.persist.consolidate import consolidate
from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.repr.frontier import Frontier
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, RelationDesc
from slackwater.storage.json_lines import json_lines
from slackwater.storage.updates import changes_by_key

Envelope = Literal["DIFF", "UPSERT", "DEBEZIUM"]

MANIFEST = "manifest.json"
ROWS_PER_FILE = 500_000
IDLE_MANIFEST_MS = 1000
"""An empty range moves the frontier in the manifest at most this often."""


class FileSystem(Protocol):
    """The file operations of a sink; each may raise OSError."""

    def make_directory(self, path: str) -> None:
        """Creates the directory and its parents; one that exists is fine."""
        ...

    def read(self, path: str) -> bytes | None:
        """The contents, or None when there is no such file."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Creates or overwrites the file; its contents are durable on return."""
        ...

    def replace(self, source: str, target: str) -> None:
        """Renames atomically, over `target` if it exists."""
        ...

    def sync_directory(self, path: str) -> None:
        """Makes the names in a directory durable."""
        ...


class LocalFileSystem:
    """The operating system's files."""

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def read(self, path: str) -> bytes | None:
        try:
            with open(path, "rb") as handle:
                return handle.read()
        except FileNotFoundError:
            return None

    def write(self, path: str, data: bytes) -> None:
        with open(path, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class SinkConfig:
    """A FILES sink. `path` is absolute. `key` names the key columns of UPSERT and DEBEZIUM.

    `snapshot` false leaves out what the relation held when the sink began.
    """

    path: str
    format: Literal["PARQUET", "JSON"]
    envelope: Envelope = "DIFF"
    key: tuple[str, ...] = ()
    snapshot: bool = True


@dataclass(frozen=True, slots=True)
class SinkStatistics:
    """Counters of mz_sink_statistics since the sink was opened in this process."""

    messages_staged: int = 0
    messages_committed: int = 0
    bytes_staged: int = 0
    bytes_committed: int = 0


def check_config(config: SinkConfig, desc: RelationDesc, object_name: str) -> None:
    """Raises SLACKWATER_SINK_KEY when the key does not suit the envelope or the relation."""

    def refuse(reason: str) -> SlackwaterError:
        key = ", ".join(config.key)
        return user_error("SLACKWATER_SINK_KEY", key=key, objectName=object_name, reason=reason)

    if config.envelope == "UPSERT" and not config.key:
        raise refuse("ENVELOPE UPSERT needs KEY (columns)")
    if config.envelope == "DIFF" and config.key:
        raise refuse("ENVELOPE DIFF takes no key")
    for name in config.key:
        if name not in desc.names:
            raise refuse(f"the relation has no column {name}")
    if len(set(config.key)) < len(config.key):
        raise refuse("a column occurs twice")


def claim_location(
    config: SinkConfig, sink_id: GlobalId, *, files: FileSystem | None = None
) -> None:
    """Makes the directory of a new sink, so that a wrong PATH is told when the sink is created.

    Raises SLACKWATER_SINK_LOCATION_IN_USE when it holds another sink's files, and
    SLACKWATER_SINK_LOCATION_UNWRITABLE.
    """
    file_system: FileSystem = LocalFileSystem() if files is None else files
    _read_manifest(file_system, config, sink_id)
    with _Refusals(config.path):
        file_system.make_directory(config.path)


class FilesSink:
    """An open sink. One writer at a time."""

    def __init__(
        self,
        config: SinkConfig,
        sink_id: GlobalId,
        desc: RelationDesc,
        object_name: str,
        manifest: Mapping[str, Any] | None,
        files: FileSystem,
        clock: Callable[[], int],
    ) -> None:
        self._config = config
        self._sink_id = sink_id
        self._desc = desc
        self._object_name = object_name
        self._file_system = files
        self._clock = clock
        self._uncertain = False
        self._continue_from(manifest)
        self._manifest_ms: int | None = None
        self._statistics = SinkStatistics()

    def _continue_from(self, manifest: Mapping[str, Any] | None) -> None:
        self._files: list[dict[str, Any]] = [] if manifest is None else list(manifest["files"])
        self._durable = None if manifest is None else Frontier(manifest["frontier"])
        self._reached = self._durable

    @staticmethod
    def open(
        config: SinkConfig,
        sink_id: GlobalId,
        desc: RelationDesc,
        object_name: str,
        *,
        clock: Callable[[], int],
        files: FileSystem | None = None,
    ) -> FilesSink:
        """Reads what the sink has committed so far.

        Raises SLACKWATER_SINK_LOCATION_IN_USE when the location belongs to another sink,
        SLACKWATER_SINK_LOCATION_UNWRITABLE, SLACKWATER_SINK_KEY.
        """
        check_config(config, desc, object_name)
        file_system: FileSystem = LocalFileSystem() if files is None else files
        manifest = _read_manifest(file_system, config, sink_id)
        return FilesSink(config, sink_id, desc, object_name, manifest, file_system, clock)

    @property
    def frontier(self) -> Frontier | None:
        """Every update before this time is durably out. None: the sink has not begun.

        The hold on the input must not pass it, because a restart continues from here.
        """
        return self._durable

    @property
    def statistics(self) -> SinkStatistics:
        return self._statistics

    def write(self, lower: Frontier, upper: Frontier, updates: Iterable[pa.Table]) -> None:
        """Commits all updates with lower <= __time < upper. Returns when they are durable.

        `updates` have the relation's columns, ``__time`` and ``__diff``. The first range of a sink
        begins at its as-of, and its updates at or before that time are the snapshot, which goes out
        with the as-of as its time. What is out already
        (below `frontier`) is left out, so a range may be repeated in any form after a crash. An
        empty range becomes durable later, with `flush` or another range.

        Raises SLACKWATER_SINK_KEY when two rows have one key (nothing of the range is written),
        SLACKWATER_NO_SPACE, SLACKWATER_SINK_LOCATION_UNWRITABLE, SLACKWATER_SINK_LOCATION_IN_USE.
        FatalError when the range leaves a gap.
        """
        if self._uncertain:
            self._settle()
        begins = self._reached is None
        reached = lower if self._reached is None else self._reached
        if lower > reached:
            raise FatalError(f"{self._sink_id}: a range from {lower} leaves a gap at {reached}")
        if upper <= reached and not begins:
            return
        first = reached.value + (1 if begins and not self._config.snapshot else 0)
        least = reached.value if begins else 0
        rows = consolidate(self._within(updates, least, first, upper.value))
        if len(rows):
            self._commit(reached, upper, self._enveloped(rows))
        else:
            self._reached = upper
            now_ms = self._clock()
            if self._manifest_ms is None or now_ms - self._manifest_ms >= IDLE_MANIFEST_MS:
                self._publish(upper, [])

    def _settle(self) -> None:
        """After an error around the commit: finds out whether it happened."""
        self._continue_from(_read_manifest(self._file_system, self._config, self._sink_id))
        if self._durable is not None:
            with _Refusals(self._config.path):
                self._file_system.sync_directory(self._config.path)
        self._uncertain = False

    def flush(self) -> None:
        """Makes the frontier of empty ranges durable. Raises what `write` raises."""
        if self._uncertain:
            self._settle()
        if self._reached is not None and self._reached != self._durable:
            self._publish(self._reached, [])

    def _within(self, updates: Iterable[pa.Table], least: int, first: int, end: int) -> pa.Table:
        """The updates with first <= time < end, by time; times below `least` are raised to it."""
        schema = self._desc.update_schema()
        tables = [schema.empty_table()]
        for table in updates:
            table = table.select(schema.names).cast(schema)
            times = pc.max_element_wise(table.column(TIME_COLUMN), least)
            at = schema.get_field_index(TIME_COLUMN)
            inside = pc.and_(pc.greater_equal(times, first), pc.less(times, end))
            tables.append(table.set_column(at, schema.field(at), times).filter(inside))
        table = pa.concat_tables(tables)
        return table.take(pc.sort_indices(table, sort_keys=[(TIME_COLUMN, "ascending")]))

    def _enveloped(self, rows: pa.Table) -> pa.Table:
        match self._config.envelope:
            case "DIFF":
                return _diff_rows(rows, self._desc)
            case "UPSERT":
                return self._upsert_rows(rows)
            case "DEBEZIUM":
                return self._debezium_rows(rows)

    def _upsert_rows(self, rows: pa.Table) -> pa.Table:
        changes = changes_by_key(rows, TIME_COLUMN, self._config.key)
        self._refuse_violation(rows, changes.violated())
        operations = pc.if_else(pc.is_valid(changes.new), "upsert", "delete")
        columns = [rows.column(TIME_COLUMN).take(changes.any_row), operations]
        for name in self._desc.names:
            at = changes.any_row if name in self._config.key else changes.new
            columns.append(rows.column(name).take(at))
        return _named(columns, ["mz_timestamp", "mz_op", *self._desc.names])

    def _debezium_rows(self, rows: pa.Table) -> pa.Table:
        if self._config.key:
            changes = changes_by_key(rows, TIME_COLUMN, self._config.key)
            self._refuse_violation(rows, changes.violated())
            any_row, old, new = changes.any_row, changes.old, changes.new
        else:
            any_row, old, new = _unpaired(rows)
        times = rows.column(TIME_COLUMN).take(any_row)
        before = _structs(rows, self._desc, old)
        after = _structs(rows, self._desc, new)
        return _named([times, before, after], ["mz_timestamp", "before", "after"])

    def _refuse_violation(self, rows: pa.Table, position: int | None) -> None:
        if position is None:
            return
        row = rows.slice(position, 1).to_pylist()[0]
        values = ", ".join(f"{name} = {row[name]!r}" for name in self._config.key)
        raise user_error(
            "SLACKWATER_SINK_KEY",
            key=", ".join(self._config.key),
            objectName=self._object_name,
            reason=f"there is more than one row with {values} at {row[TIME_COLUMN]}",
        )

    def _commit(self, lower: Frontier, upper: Frontier, messages: pa.Table) -> None:
        entries: list[dict[str, Any]] = []
        size = 0
        suffix = "parquet" if self._config.format == "PARQUET" else "jsonl"
        with _Refusals(self._config.path):
            self._file_system.make_directory(self._config.path)
            for number, start in enumerate(range(0, len(messages), ROWS_PER_FILE)):
                piece = messages.slice(start, ROWS_PER_FILE)
                name = f"{upper.value:020d}-{number}.{suffix}"
                data = _parquet(piece) if suffix == "parquet" else json_lines(piece)
                self._file_system.write(os.path.join(self._config.path, name), data)
                size += len(data)
                entries.append(
                    {
                        "path": name,
                        "lower": lower.value,
                        "upper": upper.value,
                        "rows": len(piece),
                    }
                )
            self._file_system.sync_directory(self._config.path)
        staged = self._statistics
        self._publish(upper, entries)
        self._statistics = SinkStatistics(
            staged.messages_staged + len(messages),
            staged.messages_committed + len(messages),
            staged.bytes_staged + size,
            staged.bytes_committed + size,
        )

    def _publish(self, upper: Frontier, entries: list[dict[str, Any]]) -> None:
        """Replaces the manifest: the commit."""
        path = os.path.join(self._config.path, MANIFEST)
        files = [*self._files, *entries]
        manifest = {
            "sink": self._sink_id,
            "envelope": self._config.envelope,
            "frontier": upper.value,
            "files": files,
        }
        with _Refusals(self._config.path):
            self._file_system.make_directory(self._config.path)
            self._check_unchanged()
            temporary = path + ".tmp"
            self._file_system.write(temporary, json.dumps(manifest).encode())
            self._uncertain = True
            self._file_system.replace(temporary, path)
            self._file_system.sync_directory(self._config.path)
        self._files = files
        self._durable = self._reached = upper
        self._uncertain = False
        self._manifest_ms = self._clock()

    def _check_unchanged(self) -> None:
        """Another writer of this sink (a coordinator that was fenced) must not be overwritten."""
        manifest = _read_manifest(self._file_system, self._config, self._sink_id)
        found = None if manifest is None else manifest["frontier"]
        known = None if self._durable is None else self._durable.value
        if found != known:
            raise FatalError(f"{self._sink_id}: the manifest moved from {known} to {found}")


def _read_manifest(
    files: FileSystem, config: SinkConfig, sink_id: GlobalId
) -> dict[str, Any] | None:
    """What the sink has committed; None if nothing."""
    with _Refusals(config.path):
        data = files.read(os.path.join(config.path, MANIFEST))
    return None if data is None else _decode(data, config, sink_id)


def _decode(data: bytes, config: SinkConfig, sink_id: GlobalId) -> dict[str, Any]:
    try:
        manifest = json.loads(data)
        owner = str(manifest["sink"])
        int(manifest["frontier"])
        list(manifest["files"])
    except (ValueError, KeyError, TypeError):
        raise user_error(
            "SLACKWATER_SINK_LOCATION_UNWRITABLE",
            path=config.path,
            reason=f"its {MANIFEST} is not a sink's",
        ) from None
    if owner != sink_id:
        raise user_error("SLACKWATER_SINK_LOCATION_IN_USE", path=config.path, sink=owner)
    decoded: dict[str, Any] = manifest
    return decoded


class _Refusals:
    """Turns the operating system's errors below a path into ours."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, OSError):
            return
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise user_error(
                "SLACKWATER_NO_SPACE", what="the files of a sink", path=self._path
            ) from None
        raise user_error(
            "SLACKWATER_SINK_LOCATION_UNWRITABLE",
            path=self._path,
            reason=error.strerror or str(error),
        ) from None


def _named(columns: Sequence[Any], names: Sequence[str]) -> pa.Table:
    return pa.table(list(columns), names=list(names))


def _diff_rows(rows: pa.Table, desc: RelationDesc) -> pa.Table:
    columns = [rows.column(TIME_COLUMN), rows.column(DIFF_COLUMN)]
    columns += [rows.column(name) for name in desc.names]
    return _named(columns, ["mz_timestamp", "mz_diff", *desc.names])


def _unpaired(rows: pa.Table) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Each insert and each delete by itself, as often as its diff says."""
    any_row: list[int] = []
    old: list[int | None] = []
    new: list[int | None] = []
    for position, diff in enumerate(rows.column(DIFF_COLUMN).to_pylist()):
        any_row += [position] * abs(diff)
        old += [position if diff < 0 else None] * abs(diff)
        new += [position if diff > 0 else None] * abs(diff)
    kind = pa.int64()
    return pa.array(any_row, kind), pa.array(old, kind), pa.array(new, kind)


def _structs(rows: pa.Table, desc: RelationDesc, positions: pa.Array) -> pa.Array:
    """The rows at `positions` as structs, NULL where the position is."""
    arrays = [rows.column(name).combine_chunks().take(positions) for name in desc.names]
    fields = [pa.field(name, a.type) for name, a in zip(desc.names, arrays, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=pc.is_null(positions))


def _parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()
