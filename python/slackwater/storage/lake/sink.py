"""Sinks into tables of a lake: when a range of time is committed, and where a sink goes on.

A commit of the table has a range's changes and the sink's progress. No writer is kept out: of two
that commit to the table as they have loaded it, one gets `TableChanged` and loads again.

Source: surface 4, docs/decisions 0076.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Frontier
from slackwater.storage.lake.changes import CountedChanges, LakeRows
from slackwater.storage.lake.table import LakeProgress, LakeTable, TableChanged
from slackwater.storage.sink_errors import progress_lost, unreachable
from slackwater.storage.sink_folder import IDLE_MS, Claim
from slackwater.storage.sink_rows import SinkRange
from slackwater.storage.sink_statistics import SinkStatistics

IDLE_MOST_MS = 600_000
"""The longest wait until the silence of a relation is told: each time is a commit in the table's
log, which every reader reads."""
ATTEMPTS = 20
"""So often a range is written when other writers commit meanwhile; then the sink is stalled."""


@dataclass(frozen=True, slots=True)
class SinkTable:
    """The table as messages name it. `version` is that of the sink's definition: it grows each time
    that the sink goes on with another relation."""

    shown: str
    version: int = 0


class LakeSink:
    """An open sink. One writer at a time; after an error it is of no use any more."""

    def __init__(
        self,
        rows: LakeRows,
        named: SinkTable,
        claim: Claim,
        table: LakeTable,
        *,
        clock: Callable[[], int],
        is_stopped: Callable[[], bool],
    ) -> None:
        """Reads what the sink has committed so far, and then asks who leads.

        Who led before may still commit: then this one's next commit finds another table. Raises
        `Fenced`, SLACKWATER_SINK_PROGRESS_LOST, SLACKWATER_SINK_UNREACHABLE.
        """
        self._rows = rows
        self._named = named
        self._claim = claim
        self._table = table
        self._clock = clock
        self._is_stopped = is_stopped
        self._state = self._loaded(claim.progress)
        self._reached = self.frontier
        self._silent_ms = IDLE_MS
        self._told_ms = clock()
        self._written_ms: int | None = None
        self._statistics = SinkStatistics()

    @property
    def frontier(self) -> Frontier | None:
        """Every update before this time is durably out. None: the sink has not begun."""
        return None if self._state is None else self._state.frontier

    @property
    def statistics(self) -> SinkStatistics:
        """The counts of this writer: a key that changes, or a row that is added, is a message."""
        return self._statistics

    @property
    def is_in_range(self) -> bool:
        """Whether a part of a range is out: never, since each is one commit."""
        return False

    @property
    def is_due(self) -> bool:
        """Whether COMMIT INTERVAL has passed since the last changes were written."""
        if self._written_ms is None:
            return True
        passed = self._clock() - self._written_ms
        return not 0 <= passed < self._rows.config.commit_interval_ms

    def end_of_range(self, upper: Frontier) -> Frontier:
        """The end of the next range, which may be `upper`."""
        return upper

    def write(self, lower: Frontier, upper: Frontier, updates: Iterable[pa.Table]) -> None:
        """Commits all updates with lower <= __time < upper, as `FilesSink.write` says.

        When others commit to the table meanwhile, the changes are committed to what it is then.
        Raises SLACKWATER_SINK_KEY when two rows have one key (nothing of the range is written),
        SLACKWATER_SINK_UNREACHABLE, SLACKWATER_SINK_PROGRESS_LOST, and `Fenced`. FatalError when
        the range leaves a gap.
        """
        tables = list(updates)
        while not self._write(lower, upper, tables):
            # The leader before has committed a range; what is left begins where it ended.
            pass

    def tell(self) -> None:
        """Records how far the sink is while nothing changes: after 1, 2, 4 and more seconds."""
        if self.frontier == self._reached:
            return
        if 0 <= self._clock() - self._told_ms < self._silent_ms:
            return
        self.flush()
        self._silent_ms = min(2 * self._silent_ms, IDLE_MOST_MS)

    def flush(self) -> None:
        """Makes the frontier of empty ranges durable. Raises what `write` raises."""
        while self._reached is not None and self.frontier != self._reached:
            nothing = self._rows.desc.update_schema().empty_table()
            self._commit(self._rows.changes(nothing, is_known=True), self._reached)

    def close(self) -> None:
        """Ends this writer. What it has committed stays."""
        self._table.close()

    def _write(self, lower: Frontier, upper: Frontier, updates: Sequence[pa.Table]) -> bool:
        """False: somebody else has committed a range from there."""
        asked = SinkRange(lower, upper, self._reached)
        asked.refuse_gap(self._claim.name)
        if asked.is_out:
            return True
        snapshot = self._rows.config.snapshot
        rows = asked.rows(self._rows.desc, updates, snapshot=snapshot)
        if len(rows):
            # The rows of a relation before this one may be there.
            is_known = snapshot and not asked.begins and self._named.version == 0
            changes = self._rows.changes(rows, is_known=is_known)
            if changes.messages:
                return self._commit(changes, upper)
        if self._has_snapshot:
            self._statistics = self._statistics.and_of_snapshot(0, 0)
        self._reached = upper
        if asked.begins:
            self.flush()
        return True

    def _commit(self, changes: CountedChanges, upper: Frontier) -> bool:
        """False: the sink's progress is another one than that from which the changes were made."""
        progress = LakeProgress(upper, self._named.version, self._claim.epoch)
        self._statistics = self._statistics.and_staged(changes.messages, changes.size_bytes)
        before, rows = self._statistics, changes.changes.inserted.num_rows
        for _ in range(ATTEMPTS):
            if self._has_snapshot:
                self._statistics = before.and_of_snapshot(0, rows)
            try:
                with self._claim.asked_first():
                    self._table.commit(changes.changes, progress, self._written)
            except TableChanged:
                if self._is_taken_over():
                    self._statistics = before
                    return False
                if self._is_stopped():
                    break
                continue
            if self._has_snapshot:
                # Where other rows of the table go with them, nobody tells of each.
                self._statistics = self._statistics.and_of_snapshot(rows)
            self._state, self._reached = progress, upper
            self._statistics = self._statistics.and_committed()
            self._told_ms = self._clock()
            if changes.messages:
                self._written_ms, self._silent_ms = self._told_ms, IDLE_MS
                with self._claim.asked_first():
                    self._table.tidy()
            return True
        reason = "other writers commit to it all the time"
        raise unreachable(self._claim.name, self._named.shown, reason)

    def _written(self, rows: int) -> None:
        """So many rows more of the range that is committed are handed over."""
        if self._has_snapshot:
            staged = self._statistics.snapshot_records_staged or 0
            self._statistics = self._statistics.and_of_snapshot(staged + rows)

    @property
    def _has_snapshot(self) -> bool:
        """Whether the range that is written is the first one, with the snapshot."""
        return self._rows.config.snapshot and self._reached is None

    def _is_taken_over(self) -> bool:
        """Loads the table again; whether the sink's progress in it is another one."""
        found = self._loaded(self.frontier)
        if found == self._state or found is None:
            return False
        self._state = found
        self._reached = (
            found.frontier if self._reached is None else max(self._reached, found.frontier)
        )
        return True

    def _loaded(self, known: Frontier | None) -> LakeProgress | None:
        """The progress in the table, from which this writer goes on; `known` is out for sure."""
        with self._claim.asked_first():
            found = self._table.load()
        self._claim.confirm()
        version, epoch = self._named.version, self._claim.epoch
        if found is None:
            if known is not None:
                raise self._lost(f"it says nothing, and all before {known.value} is out")
            return None
        if found.version > version or found.epoch > epoch:
            raise self._lost(
                f"it has a commit of epoch {found.epoch} and version {found.version}, and this is "
                f"epoch {epoch} and version {version}: another copy of the environment writes"
            )
        if known is not None and found.frontier < known:
            raise self._lost(
                f"it knows of {found.frontier.value}, and all before {known.value} is out"
            )
        return found

    def _lost(self, reason: str) -> SlackwaterError:
        return progress_lost(self._claim.name, self._named.shown, reason)
