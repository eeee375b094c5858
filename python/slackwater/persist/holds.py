"""Holds: why a past time of a collection must stay readable.

Inside the leader holds are tokens with an identity, so that releasing one twice has no effect on
another. Each application that reads has one durable lease besides, which protects the times that it
uses, and the files that it may still open, while the leader changes or restarts.

Source: spec controllers 1.6, 3.5, trap 7.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from threading import Lock

from sqlalchemy import Connection, delete, func, insert, select, update

from slackwater.persist.tables import reader_leases
from slackwater.repr.frontier import Timestamp


@dataclass(frozen=True, slots=True)
class ReaderLease:
    """The lease of one reading application.

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


class HoldRegistry:
    """The holds of everything that reads through this leader. Thread-safe.

    It does not know any since: who acquires a hold checks first, under the same lock as whoever
    moves the since, that `as_of` can be read.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._holds: dict[int, Hold] = {}
        self._times: dict[int, _Times] = {}
        self._next_id = 1

    def acquire(self, shard_ids: Iterable[int], as_of: Timestamp) -> Hold:
        """A new hold on all of the shards at `as_of`."""
        with self._lock:
            hold = Hold(self._next_id, frozenset(shard_ids), as_of)
            self._next_id += 1
            self._holds[hold.hold_id] = hold
            for shard_id in hold.shard_ids:
                self._times.setdefault(shard_id, _Times()).add(as_of)
            return hold

    def downgrade(self, hold: Hold, as_of: Timestamp) -> Hold:
        """Moves the hold forward to `as_of` and returns it as it is now.

        Raises ValueError when that would be backward, KeyError when the hold was released.
        """
        with self._lock:
            current = self._holds[hold.hold_id]
            if as_of < current.as_of:
                raise ValueError(f"hold {hold.hold_id} is at {current.as_of}, after {as_of}")
            moved = replace(current, as_of=as_of)
            self._holds[hold.hold_id] = moved
            for shard_id in current.shard_ids:
                times = self._times[shard_id]
                times.add(as_of)
                times.remove(current.as_of)
            return moved

    def release(self, hold: Hold) -> bool:
        """Ends the hold. False, and no effect, when it had been released before."""
        with self._lock:
            current = self._holds.pop(hold.hold_id, None)
            if current is None:
                return False
            for shard_id in current.shard_ids:
                times = self._times[shard_id]
                times.remove(current.as_of)
                if not times.counts:
                    del self._times[shard_id]
            return True

    def oldest(self, shard_id: int) -> Timestamp | None:
        """The oldest time at which somebody holds the shard."""
        with self._lock:
            times = self._times.get(shard_id)
            return None if times is None else times.least()

    def oldest_of_all(self) -> Timestamp | None:
        """The oldest time of all holds, for the application's lease."""
        with self._lock:
            found = (times.least() for times in self._times.values())
            return min((time for time in found if time is not None), default=None)
