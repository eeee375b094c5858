"""The decision what the leader is asked for, and when: a core without clock, socket or thread.

Time is given as seconds of a monotonic clock. A relation is asked for while somebody looks at a
page that shows it, and for `LOOKED_S` after; so nobody who looks costs the leader nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from slackwater.console.relations import (
    INTERVALS_S,
    KEPT_MS,
    LAG,
    LAG_HISTORY,
    SINK_COUNTS,
    SOURCE_COUNTS,
    TICKS,
    USUAL_S,
)
from slackwater.console.snapshot import Absence, Failure, Leader, Row, Sample, Snapshot

LOOKED_S = 3.0
"""Seconds for which a page counts as looked at after it was asked for."""
SLACK_S = 0.8
"""A relation that is so much older than its interval is not shown to who comes."""
EARLY_S = 0.2
"""Looks are not exactly a second apart: so much too early counts as in time."""
KEPT_MS_OF_LAGS = 3_600_000
SAMPLE_MS = 5_000
RATE_MS = 10_000
KEPT_TICKS = 32
"""So many ticks of a view the leader keeps."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The relations that are due, and from when on rows of some of them are wanted, in ms."""

    relations: tuple[str, ...]
    after: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of the leader at `at_ms` of its clock; `unknown` are relations it lacks."""

    at_ms: int
    leader: Leader
    tables: Mapping[str, tuple[Row, ...]]
    unknown: frozenset[str] = frozenset()
    failures: tuple[Failure, ...] = ()


class Watch:
    """The viewers of late, and the last snapshot. Used under one lock."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self._looked: dict[str, float] = {}
        self._taken: dict[str, float] = {}
        self._tried_s: float | None = None

    def look(self, relations: Iterable[str], now_s: float) -> None:
        """Somebody looks at a page with these relations."""
        self._looked.update(dict.fromkeys(relations, now_s))

    def is_watched(self, now_s: float) -> bool:
        """Whether somebody has looked of late."""
        return any(now_s - at < LOOKED_S for at in self._looked.values())

    def due(self, now_s: float, wall_ms: int) -> Asked | None:
        """The relations that the leader is to be asked for now; None: nobody looks."""
        watched = [name for name, at in self._looked.items() if now_s - at < LOOKED_S]
        if not watched:
            return None
        due = sorted(name for name in watched if self._age(name, now_s) > _interval(name) - EARLY_S)
        after = {name: wall_ms - KEPT_MS[name] for name in due if name in KEPT_MS}
        return Asked(tuple(due), after)

    def is_fresh(self, relations: Iterable[str], since_s: float, now_s: float) -> bool:
        """Whether the snapshot can be shown to who has asked for the relations at `since_s`.

        It can when all were told in time, or when nobody has answered since.
        """
        if self.snapshot.absence is not None:
            return self._tried_s is not None and self._tried_s >= since_s
        return all(self._is_known(name, now_s) for name in relations)

    def lacks(self, now_s: float) -> bool:
        """Whether somebody waits for a relation, and the leader has answered before."""
        watched = (name for name, at in self._looked.items() if now_s - at < LOOKED_S)
        return self.snapshot.absence is None and not all(
            self._is_known(name, now_s) for name in watched
        )

    def answered(self, asked: Asked, answer: Answer, now_s: float) -> None:
        """The leader has answered. Another leader than before is asked for all anew."""
        before = self.snapshot
        if before.leader != answer.leader:
            self._taken.clear()
        self._tried_s = now_s
        self._taken.update(dict.fromkeys(asked.relations, now_s))
        kept = {k: v for k, v in before.tables.items() if k not in answer.unknown}
        after = replace(
            before,
            at_ms=answer.at_ms,
            leader=answer.leader,
            absence=None,
            tables={**kept, **answer.tables},
            failures=answer.failures,
        )
        self.snapshot = replace(
            after,
            rates={**before.rates, **_rates(before, answer)},
            lags=_lags(before.lags, answer),
        )

    def failed(self, reason: str, now_s: float, *, leads: bool = False) -> None:
        """There was no answer, for `reason`, though somebody `leads`. What was known stays."""
        self._tried_s = now_s
        absence = self.snapshot.absence
        last_ms = self.snapshot.at_ms or None
        since_ms = last_ms if absence is None else absence.since_ms
        self.snapshot = replace(self.snapshot, absence=Absence(since_ms, reason, leads))

    def _is_known(self, relation: str, now_s: float) -> bool:
        return self._age(relation, now_s) < _interval(relation) + SLACK_S

    def _age(self, relation: str, now_s: float) -> float:
        return now_s - self._taken.get(relation, float("-inf"))


def _interval(relation: str) -> float:
    return INTERVALS_S.get(relation, USUAL_S)


_COUNTED = ((SOURCE_COUNTS, "updates_committed"), (SINK_COUNTS, "messages_committed"))


def _rates(before: Snapshot, answer: Answer) -> dict[str, float]:
    """Rows a second: of sources and sinks since the last answer, of views in the last seconds."""
    seconds = (answer.at_ms - before.at_ms) / 1000
    rates: dict[str, float] = {}
    for relation, column in _COUNTED:
        if relation not in answer.tables or relation not in before.tables or seconds <= 0:
            continue
        counted = before.by_id(relation)
        for row in answer.tables[relation]:
            if row["id"] in counted:
                more = row[column] - counted[row["id"]][column]
                rates[row["id"]] = max(0.0, more / seconds)
    if TICKS in answer.tables:
        rates.update(_rates_of_views(before, answer))
    return rates


def _rates_of_views(before: Snapshot, answer: Answer) -> dict[str, float]:
    ticks = answer.tables[TICKS]
    rates = dict.fromkeys((row["object_id"] for row in (*before.rows(TICKS), *ticks)), 0.0)
    of_view: dict[str, list[tuple[float, int]]] = {}
    for row in ticks:
        ago_ms = answer.at_ms - row["committed_at"].timestamp() * 1000
        of_view.setdefault(row["object_id"], []).append((ago_ms, row["rows_emitted"]))
    for object_id, known in of_view.items():
        oldest_ms = max(ago_ms for ago_ms, _ in known)
        # What a busy view has emitted before its oldest tick is not known any more.
        span_ms = RATE_MS if len(known) < KEPT_TICKS else max(1.0, min(RATE_MS, oldest_ms))
        emitted = sum(rows for ago_ms, rows in known if ago_ms <= span_ms)
        rates[object_id] = emitted * 1000 / span_ms
    return rates


def _lags(
    before: Mapping[str, tuple[Sample, ...]], answer: Answer
) -> dict[str, tuple[Sample, ...]]:
    """The samples of the last hour: those of the leader's history, and what was seen since."""
    oldest = answer.at_ms - KEPT_MS_OF_LAGS
    told: dict[str, list[Sample]] = {}
    for row in answer.tables.get(LAG_HISTORY, ()):
        if row["lag"] is not None:
            at_ms = int(row["occurred_at"].timestamp() * 1000)
            told.setdefault(row["object_id"], []).append((at_ms, row["lag"]))
    lags = dict(before)
    for object_id, samples in told.items():
        samples.sort()
        later = (each for each in before.get(object_id, ()) if each[0] > samples[-1][0])
        lags[object_id] = (*samples, *later)
    if LAG not in answer.tables:
        return lags
    present: dict[str, tuple[Sample, ...]] = {}
    for row in answer.tables[LAG]:
        known = lags.get(row["object_id"], ())
        if row["lag"] is not None and (not known or answer.at_ms - known[-1][0] >= SAMPLE_MS):
            known = (*(each for each in known if each[0] > oldest), (answer.at_ms, row["lag"]))
        present[row["object_id"]] = known
    return present
