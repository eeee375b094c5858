"""Holds: why a past time of a collection must stay readable.

Inside the leader holds are tokens with an identity, so that releasing one twice has no effect on
another. The leader has one durable lease besides for all applications that read through it. It
outlives the leader, and protects the times that they use and the files that they may still open
while the leader changes or restarts (decision 0007).

Source: spec controllers 1.6, 3.5, trap 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from threading import Lock

from sqlalchemy import Connection, delete, func, insert, select, update

from slackwater.persist.tables import reader_leases
from slackwater.repr.frontier import TIMESTAMP_MAX, Timestamp


@dataclass(frozen=True, slots=True)
class ReaderLease:
    """The lease of a leader, for all applications that read through it.

    `since` is the oldest time that it uses. After `expires_ms` (wall clock) it protects nothing.
    """

    reader_id: str
    application: str
    since: Timestamp
    expires_ms: int


class LeaseExpired(Exception):
    """The lease is not on record any more: the reader must register again."""

    def __init__(self, reader_id: str) -> None:
        super().__init__(f"the lease of reader {reader_id} has expired")
        self.reader_id = reader_id


class SinceAdvanced(Exception):
    """A hold was asked for at a time that is not readable any more; there is no hold.

    `since` is the first time at which the shard can be held.
    """

    def __init__(self, shard_id: int, since: Timestamp, as_of: Timestamp) -> None:
        super().__init__(f"shard {shard_id} can be held from {since} on, not at {as_of}")
        self.shard_id = shard_id
        self.since = since


class SteadyClock:
    """Wall clock milliseconds that never go back. Thread-safe.

    What a hold may still read is decided by comparing times of this clock, so it must not jump.
    """

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._lock = Lock()
        self._last_ms = 0

    def __call__(self) -> int:
        with self._lock:
            self._last_ms = max(self._last_ms, self._clock_ms())
            return self._last_ms


def register(conn: Connection, lease: ReaderLease) -> None:
    """Puts the lease on record, in place of an older one of the same reader."""
    conn.execute(delete(reader_leases).where(reader_leases.c.reader_id == lease.reader_id))
    conn.execute(
        insert(reader_leases).values(
            reader_id=lease.reader_id,
            application=lease.application,
            since=lease.since,
            expires_ms=lease.expires_ms,
        )
    )


def renew(conn: Connection, reader_id: str, since: Timestamp, expires_ms: int) -> None:
    """Moves the lease's since forward (never back) and extends it.

    Raises `LeaseExpired` when it is not on record.
    """
    row = conn.execute(
        select(reader_leases.c.since, reader_leases.c.expires_ms).where(
            reader_leases.c.reader_id == reader_id
        )
    ).one_or_none()
    if row is None:
        raise LeaseExpired(reader_id)
    conn.execute(
        update(reader_leases)
        .where(reader_leases.c.reader_id == reader_id)
        .values(since=max(row.since, since), expires_ms=max(row.expires_ms, expires_ms))
    )


def release(conn: Connection, reader_id: str) -> None:
    """Ends the lease; an unknown reader is ignored."""
    conn.execute(delete(reader_leases).where(reader_leases.c.reader_id == reader_id))


def expire(conn: Connection, now_ms: int) -> tuple[str, ...]:
    """Removes the leases with ``expires_ms <= now_ms`` and returns their readers."""
    overdue = reader_leases.c.expires_ms <= now_ms
    found = conn.scalars(
        select(reader_leases.c.reader_id).where(overdue).order_by(reader_leases.c.reader_id)
    ).all()
    if found:
        conn.execute(delete(reader_leases).where(overdue))
    return tuple(found)


def leases(conn: Connection) -> tuple[ReaderLease, ...]:
    """All leases on record, expired ones included, ordered by reader."""
    statement = select(
        reader_leases.c.reader_id,
        reader_leases.c.application,
        reader_leases.c.since,
        reader_leases.c.expires_ms,
    ).order_by(reader_leases.c.reader_id)
    return tuple(ReaderLease(*row) for row in conn.execute(statement))


def oldest_lease(conn: Connection) -> Timestamp | None:
    """The oldest time that any lease on record protects."""
    oldest = conn.scalar(select(func.min(reader_leases.c.since)))
    return None if oldest is None else Timestamp(oldest)


@dataclass(frozen=True, slots=True)
class Hold:
    """One reader's claim on the times at and after `as_of` of some shards."""

    hold_id: int
    shard_ids: frozenset[int]
    as_of: Timestamp


@dataclass(slots=True)
class _Times:
    """A multiset of times whose least element is found in logarithmic time."""

    counts: dict[Timestamp, int] = field(default_factory=dict)
    heap: list[Timestamp] = field(default_factory=list)

    def add(self, time: Timestamp) -> None:
        count = self.counts.get(time, 0)
        self.counts[time] = count + 1
        if count == 0:
            heappush(self.heap, time)

    def remove(self, time: Timestamp) -> None:
        count = self.counts[time] - 1
        if count:
            self.counts[time] = count
            return
        del self.counts[time]
        if len(self.heap) > 2 * len(self.counts) + 64:
            # One old hold would otherwise keep the times of all holds that came and went.
            self.heap = list(self.counts)
            heapify(self.heap)
        while self.heap and self.heap[0] not in self.counts:
            heappop(self.heap)

    def least(self) -> Timestamp | None:
        return self.heap[0] if self.heap else None


@dataclass(slots=True)
class _Token:
    """A hold, and the wall clock time since when its reader may have file names in use."""

    hold: Hold
    opened_ms: int


class HoldRegistry:
    """The holds of everything that reads through this leader, and the sinces. Thread-safe.

    Here the race between a new hold and a since that moves is decided: `acquire` and
    `advance_since` exclude each other, so either the hold was first and the since stops at it, or
    the since was first and the hold is refused (I12, I24). `clock_ms` never goes back.
    """

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._lock = Lock()
        self._tokens: dict[int, _Token] = {}
        self._times: dict[int, _Times] = {}
        self._sinces: dict[int, Timestamp] = {}
        self._next_id = 1

    def acquire(self, shard_ids: Iterable[int], as_of: Timestamp) -> Hold:
        """A new hold on all of the shards at `as_of`. Raises `SinceAdvanced`."""
        with self._lock:
            hold = Hold(self._next_id, frozenset(shard_ids), as_of)
            for shard_id in hold.shard_ids & self._sinces.keys():
                if as_of < self._sinces[shard_id]:
                    raise SinceAdvanced(shard_id, self._sinces[shard_id], as_of)
            self._next_id += 1
            self._tokens[hold.hold_id] = _Token(hold, self._clock_ms())
            for shard_id in hold.shard_ids:
                self._times.setdefault(shard_id, _Times()).add(as_of)
            return hold

    def downgrade(self, hold: Hold, as_of: Timestamp) -> Hold:
        """Moves the hold forward to `as_of` and returns it as it is now.

        Its reader uses no names of files that it got before. Raises ValueError when that would be
        backward, KeyError when the hold was released.
        """
        with self._lock:
            current = self._tokens[hold.hold_id].hold
            if as_of < current.as_of:
                raise ValueError(f"hold {hold.hold_id} is at {current.as_of}, after {as_of}")
            moved = replace(current, as_of=as_of)
            self._tokens[hold.hold_id] = _Token(moved, self._clock_ms())
            for shard_id in current.shard_ids:
                times = self._times[shard_id]
                times.add(as_of)
                times.remove(current.as_of)
            return moved

    def release(self, hold: Hold) -> bool:
        """Ends the hold. False, and no effect, when it had been released before."""
        with self._lock:
            token = self._tokens.pop(hold.hold_id, None)
            if token is None:
                return False
            for shard_id in token.hold.shard_ids:
                times = self._times[shard_id]
                times.remove(token.hold.as_of)
                if not times.counts:
                    del self._times[shard_id]
            return True

    def oldest(self, shard_id: int) -> Timestamp | None:
        """The oldest time at which somebody holds the shard."""
        with self._lock:
            return self._oldest(shard_id)

    def oldest_of_all(self) -> Timestamp | None:
        """The oldest time of all holds, for the application's lease."""
        with self._lock:
            found = (times.least() for times in self._times.values())
            return min((time for time in found if time is not None), default=None)

    def since(self, shard_id: int) -> Timestamp:
        """The first time at which the shard can be held."""
        with self._lock:
            return self._sinces.get(shard_id, Timestamp(0))

    def advance_since(self, shard_id: int, to: Timestamp) -> Timestamp:
        """Moves the shard's since forward, to `to` or to the oldest hold before that.

        Returns where it is now. What is before may be compacted away.
        """
        with self._lock:
            oldest = self._oldest(shard_id)
            limit = to if oldest is None else min(to, oldest)
            since = max(limit, self._sinces.get(shard_id, Timestamp(0)))
            self._sinces[shard_id] = since
            return since

    def retire(self, shard_id: int) -> bool:
        """Lets nobody hold the shard any more, unless somebody does: then False."""
        with self._lock:
            if shard_id in self._times:
                return False
            self._sinces[shard_id] = TIMESTAMP_MAX
            return True

    def opened_ms(self) -> dict[int, int]:
        """For each shard that is held the wall clock time of the oldest hold on it.

        Files that were replaced before that time are in use by no hold.
        """
        found: dict[int, int] = {}
        with self._lock:
            for token in self._tokens.values():
                for shard_id in token.hold.shard_ids:
                    known = found.get(shard_id, token.opened_ms)
                    found[shard_id] = min(known, token.opened_ms)
        return found

    def _oldest(self, shard_id: int) -> Timestamp | None:
        times = self._times.get(shard_id)
        return None if times is None else times.least()
