"""Leases: why a past time must stay readable beyond the life of a leader.

Inside the leader the storage controller keeps holds, which are tokens with an identity. The leader
has one durable lease besides for all applications that read through it. It outlives the leader, and
protects the times that they use and the files that they may still open while the leader changes or
restarts (decision 0007).

Source: spec controllers 1.6, 3.5, trap 7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from sqlalchemy import Connection, delete, insert, select

from slackwater.persist.tables import reader_leases
from slackwater.repr.frontier import Timestamp


@dataclass(frozen=True, slots=True)
class ReaderLease:
    """The lease of a leader, for all applications that read through it.

    `since` is the oldest time that it uses. After `expires_ms` (wall clock) it protects nothing.
    """

    reader_id: str
    application: str
    since: Timestamp
    expires_ms: int


class SinceAdvanced(Exception):
    """A shard was to be read at a time that is not readable any more.

    `since` is the first time at which the shard can be read.
    """

    def __init__(self, shard_id: int, since: Timestamp, as_of: Timestamp) -> None:
        super().__init__(f"shard {shard_id} can be read from {since} on, not at {as_of}")
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
