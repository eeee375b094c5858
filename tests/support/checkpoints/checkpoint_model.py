"""What checkpoint groups do, by their definition: whole histories in memory, nothing looked up.

`original` is what CockroachDB Replicator computes, `hardened` what Slackwater does.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field, replace

from slackwater.repr.hlc import ZERO, Range, Time

FIRST = Time(1, 1)


@dataclass(frozen=True)
class Row:
    time: Time
    applied: bool


def history(text):
    """Rows as ``10A 20U``: applied and not, the number being the nanoseconds."""
    return [Row(Time(int(n)), mark == "A") for n, mark in re.findall(r"(\d+)([AU])", text)]


def original(partitions, known, lookahead=None):
    """The range that a reader publishes whose own last ``min`` is `known`."""
    found = []
    for rows in partitions.values():
        rows = [row for row in rows if row.time >= known]
        pairs = list(itertools.pairwise(rows))
        lowers = [a.time for a, b in pairs if a.applied and not b.applied]
        uppers = [a.time for a, b in pairs if not a.applied and b.applied]
        lower, upper = next(iter(lowers), None), next(iter(uppers), None)
        window = [
            row
            for row in rows
            if (lower is None or row.time >= lower) and (upper is None or row.time <= upper)
        ]
        if lookahead is not None:
            # It joins each row with all of these, and counts it as often.
            copies = max(1, len(lowers)) * max(1, len(uppers))
            window = [row for row in window for _ in range(copies)][: lookahead + 1]
        if window:
            is_dirty = any(not row.applied for row in window)
            found.append((lower or ZERO, window[-1].time, is_dirty))
    if not found:
        return Range.including(known, known)
    common = min(top for _, top, _ in found)
    mins = [low for low, top, is_dirty in found if is_dirty and top <= common]
    return Range.including(min(mins, default=common), common)


def hardened(partitions, known, lookahead=None):
    """The range of a group of which `known` was committed."""
    found = []
    for rows in partitions.values():
        if not rows:
            continue
        waiting = next((n for n, row in enumerate(rows) if not row.applied), len(rows))
        gap = next((n for n in range(waiting, len(rows)) if rows[n].applied), len(rows))
        lead = rows[waiting - 1].time if waiting else None
        run = [row.time for row in rows[waiting:gap]]
        window = ([] if lead is None else [lead]) + run
        if run and lookahead is not None:
            window = window[: lookahead + 1]
        found.append((lead or ZERO, run[0] if run else None, window[-1]))
    if not found:
        return Range.including(known, known)
    common = min(top for _, _, top in found)
    low = min((lead for lead, first, _ in found if first and first <= common), default=common)
    return Range.including(max(low, known), max(common, known))


@dataclass
class Model:
    """One group: its rows, and what was committed for good."""

    committed: Time = ZERO
    partitions: dict[str, list[Row]] = field(default_factory=dict)

    def may_advance(self, partition, time):
        rows = self.partitions.get(partition)
        return not rows or time >= rows[-1].time

    def advance(self, partition, time):
        rows = self.partitions.setdefault(partition, [])
        if not rows or time > rows[-1].time:
            rows.append(Row(time, False))

    def commit(self, done):
        for name, rows in self.partitions.items():
            self.partitions[name] = [
                replace(row, applied=row.applied or done.min <= row.time < done.max) for row in rows
            ]
        self.keep(hardened(self.partitions, self.committed).min)

    def ensure(self, partition):
        if not self.partitions.get(partition):
            self.partitions[partition] = [Row(FIRST, True)]

    def keep(self, reached):
        self.committed = max(self.committed, reached)
