"""The FILES sink: one numbered set of files for each committed range of time.

Here a range of updates becomes messages; `slackwater.storage.sink_folder` says how they are
committed. A reader that follows ``manifest.json`` sees each update exactly once.

Source: spec coordinator 6.5, surface 4.1.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.repr.frontier import Frontier
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, RelationDesc
from slackwater.storage.json_lines import json_lines
from slackwater.storage.sink_folder import (
    Claim,
    DataFile,
    FileSystem,
    LocalFileSystem,
    SinkFolder,
    read_manifest,
    refusals,
)
from slackwater.storage.sink_rows import (
    SinkKey,
    SinkRange,
    changes_of,
    refuse_added,
    structs,
    unpaired,
)
from slackwater.storage.sink_statistics import SinkStatistics

Envelope = Literal["DIFF", "UPSERT", "DEBEZIUM"]

ROWS_PER_FILE = 500_000

_DIFF_HEAD = ("mz_timestamp", "mz_diff")
_UPSERT_HEAD = ("mz_timestamp", "mz_op")


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


def check_config(config: SinkConfig, desc: RelationDesc, object_name: str) -> None:
    """Raises SLACKWATER_SINK_KEY when the key does not suit the envelope or the relation.

    Raises SLACKWATER_DUPLICATE_COLUMN when a column of the relation has the name of one that the
    envelope adds: readers find columns of files by their names, and often whatever their case is.
    """

    key = SinkKey(config.key, object_name)
    if config.envelope == "UPSERT" and not config.key:
        raise key.refused("ENVELOPE UPSERT needs KEY (columns)")
    if config.envelope == "DIFF" and config.key:
        raise key.refused("ENVELOPE DIFF takes no key")
    key.check(desc)
    # DEBEZIUM has the relation's columns inside of `before` and `after`.
    added = {"DIFF": _DIFF_HEAD, "UPSERT": _UPSERT_HEAD, "DEBEZIUM": ()}[config.envelope]
    refuse_added(desc, added, f"the files of {object_name}")


def claim_location(
    config: SinkConfig, sink_id: GlobalId, *, files: FileSystem | None = None
) -> None:
    """Makes the directory of a new sink, so that a wrong PATH is told when the sink is created.

    Raises SLACKWATER_SINK_LOCATION_IN_USE when it holds another sink's files, and
    SLACKWATER_SINK_LOCATION_UNWRITABLE.
    """
    file_system: FileSystem = LocalFileSystem() if files is None else files
    with refusals(config.path):
        read_manifest(config.path, sink_id, file_system)
        file_system.make_directory(config.path)


class FilesSink:
    """An open sink. One writer at a time."""

    def __init__(
        self,
        config: SinkConfig,
        desc: RelationDesc,
        claim: Claim,
        *,
        clock: Callable[[], int],
        files: FileSystem | None = None,
    ) -> None:
        """Keeps earlier writers out, and reads what the sink has committed so far.

        Raises SLACKWATER_SINK_LOCATION_IN_USE when the location belongs to another sink,
        SLACKWATER_SINK_LOCATION_UNWRITABLE, SLACKWATER_SINK_KEY, and `Fenced`.
        """
        check_config(config, desc, claim.name)
        files = LocalFileSystem() if files is None else files
        self._config = config
        self._desc = desc
        self._object_name = claim.name
        self._key = SinkKey(config.key, claim.name)
        self._folder = SinkFolder(config.path, config.envelope, claim, files, clock)
        self._reached = self._folder.frontier
        self._statistics = SinkStatistics()

    @property
    def frontier(self) -> Frontier | None:
        """Every update before this time is durably out. None: the sink has not begun.

        The hold on the input must not pass it, because a restart continues from here.
        """
        return self._folder.frontier

    @property
    def statistics(self) -> SinkStatistics:
        """The counts of this writer: a row of a file is a message."""
        return self._statistics

    @property
    def is_in_range(self) -> bool:
        """Whether a part of a range is out: never, since each is committed at once."""
        return False

    @property
    def is_due(self) -> bool:
        """Whether another range may be written now: always."""
        return True

    def end_of_range(self, upper: Frontier) -> Frontier:
        """The end of the next range, which may be `upper`."""
        return upper

    def write(self, lower: Frontier, upper: Frontier, updates: Iterable[pa.Table]) -> None:
        """Commits all updates with lower <= __time < upper. Returns when they are durable.

        `updates` have the relation's columns, ``__time`` and ``__diff``. The first range of a sink
        begins at its as-of, and its updates at or before that time are the snapshot, which goes out
        with the as-of as its time. What is out already
        (below `frontier`) is left out, so a range may be repeated in any form after a crash. An
        empty range becomes durable later, with `tell`, `flush` or another range.

        Raises SLACKWATER_SINK_KEY when two rows have one key (nothing of the range is written),
        SLACKWATER_NO_SPACE, SLACKWATER_SINK_LOCATION_UNWRITABLE, SLACKWATER_SINK_LOCATION_IN_USE,
        and `Fenced`. FatalError when the range leaves a gap.
        """
        tables = list(updates)
        while not self._write(lower, upper, tables):
            # Somebody has committed a range meanwhile; what is left begins where it ended.
            found = self._folder.frontier
            self._reached = (
                found if self._reached is None or found is None else max(self._reached, found)
            )

    def _write(self, lower: Frontier, upper: Frontier, updates: Sequence[pa.Table]) -> bool:
        asked = SinkRange(lower, upper, self._reached)
        asked.refuse_gap(self._object_name)
        if asked.is_out:
            return True
        rows = asked.rows(self._desc, updates, snapshot=self._config.snapshot)
        messages = self._enveloped(rows) if len(rows) else rows
        before = self._statistics
        if self._has_snapshot:
            self._statistics = before.and_of_snapshot(0, len(messages))
        if len(rows) and not self._folder.commit(asked.start, upper, self._files(messages)):
            self._statistics = before
            return False
        self._statistics = self._statistics.and_committed()
        self._reached = upper
        self._folder.tell(upper, now=asked.begins)
        return True

    def tell(self) -> None:
        """Lets readers know how far the sink is, when it is time. Raises what `write` raises."""
        if self._reached is not None:
            self._folder.tell(self._reached)

    def flush(self) -> None:
        """Makes the frontier of empty ranges durable. Raises what `write` raises."""
        if self._reached is not None:
            self._folder.tell(self._reached, now=True)

    def close(self) -> None:
        """Ends this writer. What it has committed stays."""
        self._folder.close()

    def _enveloped(self, rows: pa.Table) -> pa.Table:
        match self._config.envelope:
            case "DIFF":
                return _diff_rows(rows, self._desc)
            case "UPSERT":
                return self._upsert_rows(rows)
            case "DEBEZIUM":
                return self._debezium_rows(rows)

    def _upsert_rows(self, rows: pa.Table) -> pa.Table:
        changes = changes_of(rows, self._key)
        operations = pc.if_else(pc.is_valid(changes.new), "upsert", "delete")
        columns = [rows.column(TIME_COLUMN).take(changes.any_row), operations]
        for column in self._desc.columns:
            at = changes.any_row if column.name in self._config.key else changes.new
            columns.append(rows.column(column.stored_name).take(at))
        return _named(columns, [*_UPSERT_HEAD, *self._desc.names])

    def _debezium_rows(self, rows: pa.Table) -> pa.Table:
        if self._config.key:
            changes = changes_of(rows, self._key)
            any_row, old, new = changes.any_row, changes.old, changes.new
        else:
            any_row, old, new = unpaired(rows)
        times = rows.column(TIME_COLUMN).take(any_row)
        before, after = (structs(rows, self._desc.names, each) for each in (old, new))
        return _named([times, before, after], ["mz_timestamp", "before", "after"])

    @property
    def _has_snapshot(self) -> bool:
        """Whether the range that is written is the first one, with the snapshot."""
        return self._config.snapshot and self._reached is None

    def _files(self, messages: pa.Table) -> Iterator[DataFile]:
        """The files with the messages, which count once the next file is asked for."""
        suffix = "parquet" if self._config.format == "PARQUET" else "jsonl"
        for start in range(0, len(messages), ROWS_PER_FILE):
            piece = messages.slice(start, ROWS_PER_FILE)
            data = _parquet(piece) if suffix == "parquet" else json_lines(piece)
            yield DataFile(data, len(piece), suffix)
            self._statistics = self._statistics.and_staged(len(piece), len(data))
            if self._has_snapshot:
                self._statistics = self._statistics.and_of_snapshot(start + len(piece))


def _named(columns: Sequence[Any], names: Sequence[str]) -> pa.Table:
    return pa.table(list(columns), names=list(names))


def _diff_rows(rows: pa.Table, desc: RelationDesc) -> pa.Table:
    columns = [rows.column(TIME_COLUMN), rows.column(DIFF_COLUMN)]
    columns += [rows.column(name) for name in desc.stored_names]
    return _named(columns, [*_DIFF_HEAD, *desc.names])


def _parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()
