"""The objects of an environment and the state of each, out of a snapshot."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from urllib.parse import quote

from slackwater.console import relations as r
from slackwater.console.snapshot import Failure, Row, Snapshot

LATE_MS = 10_000
"""An object that is further behind the clock counts as late."""

STALLED_VIEW = "stalled view"
UNINDEXED_VIEW = "unindexed view"
WITH_CONTENTS = frozenset({"table", "source", "materialized-view", "index", "sink"})
MAINTAINED = frozenset({"materialized-view", "index"})
FILLED = frozenset({"progress", "subsource", "table"})
"""Types of relations that are as their source is."""
_SYSTEM = "s"
_CONDITION = re.compile(r"\[([A-Z0-9_.]+)\]")


class State(Enum):
    """The state of an object; the worst first."""

    FAILING = "failing"
    STALLED = "stalled"
    NO_MEMORY = "no memory"
    HYDRATING = "hydrating"
    PAUSED = "paused"
    RUNNING = "running"
    DEFINED = ""
    """It has no contents of its own, such as a plain view or a connection."""

    @property
    def token(self) -> str:
        """The state as a word of a style sheet."""
        return self.value.replace(" ", "-") or "defined"


@dataclass(frozen=True, slots=True)
class Health:
    """The state of an object. `reason` says why it is not running, `detail` how far it is.

    `is_own`: it is not the state of the source that fills the object.
    """

    state: State
    detail: str = ""
    condition: str = ""
    reason: str = ""
    since_ms: int | None = None
    advice: str = ""
    is_own: bool = True


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """An object as it is listed. `behind_ms` is None for what has no contents."""

    id: str
    name: str
    schema: str
    kind: str
    health: Health
    behind_ms: int | None
    rows_per_s: float | None
    path: str

    @property
    def is_late(self) -> bool:
        """Whether it is behind by more than the clock alone makes."""
        return self.behind_ms is not None and self.behind_ms > LATE_MS


def entries(snapshot: Snapshot) -> tuple[ObjectEntry, ...]:
    """The objects of users, the worst first."""
    named = [row for row in snapshot.rows(r.NAMES) if not row["id"].startswith(_SYSTEM)]
    names = [full_name(row) for row in named]
    times = Counter(names)
    lags = snapshot.by_id(r.LAG, "object_id")
    states = _States.of(snapshot)
    found = [
        ObjectEntry(
            id=row["id"],
            name=name,
            schema=row["schema_name"],
            kind=row["object_type"],
            health=states.health(row),
            behind_ms=lags[row["id"]]["lag"] if row["id"] in lags else None,
            rows_per_s=snapshot.rates.get(row["id"]),
            path="/objects/" + quote(name if times[name] == 1 else row["id"], safe=""),
        )
        for row, name in zip(named, names, strict=True)
    ]
    return tuple(sorted(found, key=_badness))


def full_name(row: Row) -> str:
    """``schema.name``, as people read it."""
    return f"{row['schema_name']}.{row['name']}"


def find(found: tuple[ObjectEntry, ...], name: str) -> ObjectEntry | None:
    """The object with this name, or this id."""
    return next((each for each in found if name in (each.name, each.id)), None)


def _badness(entry: ObjectEntry) -> tuple[int, int, str]:
    # By whole seconds, so that rows do not change places for less.
    return list(State).index(entry.health.state), -((entry.behind_ms or 0) // 1000), entry.name


@dataclass(frozen=True, slots=True)
class _States:
    """The relations that say how objects are, by id."""

    failures: Mapping[str, Failure]
    stalled: Mapping[str, Row]
    unindexed: Mapping[str, Row]
    statuses: Mapping[str, Row]
    hydrated: Mapping[str, bool]
    progress: Mapping[str, Row]
    snapshots: Mapping[str, Row]

    @staticmethod
    def of(snapshot: Snapshot) -> _States:
        notices = [row for row in snapshot.rows(r.NOTICES) if row["object_id"] is not None]
        hydrated: dict[str, bool] = {}
        for row in snapshot.rows(r.HYDRATED):
            hydrated[row["object_id"]] = hydrated.get(row["object_id"], False) or row["hydrated"]
        return _States(
            failures={each.object_id: each for each in snapshot.failures},
            stalled={n["object_id"]: n for n in notices if n["notice_type"] == STALLED_VIEW},
            unindexed={n["object_id"]: n for n in notices if n["notice_type"] == UNINDEXED_VIEW},
            statuses={**snapshot.by_id(r.SOURCES), **snapshot.by_id(r.SINKS)},
            hydrated=hydrated,
            progress=snapshot.by_id(r.PROGRESS, "object_id"),
            snapshots={**snapshot.by_id(r.SOURCE_COUNTS), **snapshot.by_id(r.SINK_COUNTS)},
        )

    def health(self, row: Row) -> Health:
        """The state of the object that the row names."""
        object_id, kind = row["id"], row["object_type"]
        if kind not in WITH_CONTENTS:
            return Health(State.DEFINED)
        failure = self.failures.get(object_id)
        if failure is not None:
            return _failing(failure, kind)
        if kind in MAINTAINED:
            return self._of_maintained(object_id)
        status = self.statuses.get(object_id)
        if status is None:
            return Health(State.RUNNING)
        found = _of_status(status, kind)
        counts = self.snapshots.get(object_id)
        if counts is None:
            return found
        staged, known = counts["snapshot_records_staged"] or 0, counts["snapshot_records_known"]
        if kind == "sink":
            begins = found.state is State.RUNNING and known is not None and staged < known
            return _read(staged, known, "messages") if begins else found
        if found.state is State.HYDRATING and known is None and status["type"] == "files":
            return _read(counts["offset_committed"], counts["offset_known"], "files")
        if found.state is State.HYDRATING:
            return _read(staged, known, "messages" if status["type"] == "kafka" else "rows")
        return found

    def _of_maintained(self, object_id: str) -> Health:
        notice = self.stalled.get(object_id)
        if notice is not None:
            return _told(State.STALLED, notice)
        if object_id not in self.hydrated:
            reason = "The cluster that maintains it has no replicas."
            return Health(State.PAUSED, reason=reason)
        if not self.hydrated[object_id]:
            return _hydrating(self.progress.get(object_id))
        notice = self.unindexed.get(object_id)
        return Health(State.RUNNING) if notice is None else _told(State.NO_MEMORY, notice)


def _failing(failure: Failure, kind: str) -> Health:
    what = "row" if kind in MAINTAINED else "message or file"
    return Health(
        State.FAILING,
        condition=failure.condition,
        reason=failure.message,
        since_ms=failure.since_ms,
        advice=f"Nothing of it can be read until the {what} that is named is corrected or removed.",
    )


def _condition(text: str) -> str:
    """The condition in a text such as ``... [CONDITION] message``; "" if there is none."""
    found = _CONDITION.search(text)
    return "" if found is None else found[1]


def _told(state: State, notice: Row) -> Health:
    return Health(
        state,
        condition=_condition(notice["message"]),
        reason=notice["message"],
        since_ms=int(notice["created_at"].timestamp() * 1000),
        advice=notice["hint"],
    )


def _hydrating(progress: Row | None) -> Health:
    if progress is None:
        return Health(State.HYDRATING)
    return _read(progress["rows_read"], progress["rows_known"], "rows")


def _read(read: int, known: int | None, of: str) -> Health:
    """It reads, or writes, what there was at first: so many of those that are known."""
    if not known:
        return Health(State.HYDRATING)
    # What was found meanwhile may be more than was known when it began.
    percent = min(100, 100 * read // known)
    return Health(State.HYDRATING, detail=f"{percent} % of {known:,} {of}".replace(",", " "))


_OF_STATUS = {
    "stalled": State.STALLED,
    "failed": State.STALLED,
    "ceased": State.STALLED,
    "paused": State.PAUSED,
    "starting": State.HYDRATING,
    "created": State.HYDRATING,
}


def _of_status(status: Row, kind: str) -> Health:
    state = _OF_STATUS.get(status["status"], State.RUNNING)
    changed = status["last_status_change_at"]
    since_ms = None if changed is None else int(changed.timestamp() * 1000)
    if state is State.PAUSED:
        return Health(state, reason="The cluster that runs it has no replicas.", since_ms=since_ms)
    if state is not State.STALLED:
        return Health(state)
    advice = (
        "Its contents stay as they are meanwhile. It is tried again until the cause is gone."
        if kind != "sink"
        else "What it has written stays. It is tried again until the cause is gone."
    )
    error = status["error"] or f"Its status is {status['status']}."
    is_own = status["type"] not in FILLED
    return Health(state, "", _condition(error), error, since_ms, advice, is_own)
