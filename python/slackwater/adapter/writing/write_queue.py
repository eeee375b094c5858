"""The order of writes and of write locks.

One FIFO queue of requests. A write may be taken unless a lock that another owner holds, or waits
for ahead of it, covers one of its shards. A lock is granted when no other owner's lock, no write in
flight and no earlier request touches its shards, so after the grant no write of others to them
commits until the release. Writes do not wait for each other: their diffs commute.

No deadlock: a lock is all or nothing, an owner has at most one, and the owner's writes stay within
it and never wait. Fair: whoever is ahead of a lock drains, whoever is behind waits.

Source: spec coordinator 3.3 (all-or-nothing, here without the retry that optimism needs).
"""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.repr.errors import FatalError


@dataclass(frozen=True, slots=True)
class Request:
    """A write or a lock in the queue. `deadline_ms` is on the caller's monotonic clock."""

    token: int
    shard_ids: frozenset[int]
    owner: str | None
    is_lock: bool
    deadline_ms: int


class WriteQueue:
    """Decides only; knows no threads, no clock and no data. Callers serialise their calls."""

    def __init__(self) -> None:
        self._waiting: dict[int, Request] = {}
        self._held: dict[str, frozenset[int]] = {}
        self._in_flight: frozenset[int] = frozenset()
        self._next_token = 0

    def offer_write(self, shard_ids: frozenset[int], owner: str | None, deadline_ms: int) -> int:
        """Queues a write and returns its token.

        Raises FatalError if `owner` holds a lock that does not cover the write: it could wait for
        an owner that waits for it.
        """
        held = self._held.get(owner) if owner is not None else None
        if held is not None and not shard_ids <= held:
            raise FatalError(f"{owner} writes {sorted(shard_ids - held)} outside of its lock")
        return self._enqueue(shard_ids, owner, is_lock=False, deadline_ms=deadline_ms)

    def offer_lock(self, shard_ids: frozenset[int], owner: str, deadline_ms: int) -> int:
        """Queues a lock and returns its token. Raises FatalError if `owner` has one already."""
        waits = any(r.is_lock and r.owner == owner for r in self._waiting.values())
        if owner in self._held or waits:
            raise FatalError(f"{owner} asks for a second write lock")
        return self._enqueue(shard_ids, owner, is_lock=True, deadline_ms=deadline_ms)

    def _enqueue(
        self, shard_ids: frozenset[int], owner: str | None, *, is_lock: bool, deadline_ms: int
    ) -> int:
        token = self._next_token
        self._next_token += 1
        self._waiting[token] = Request(token, shard_ids, owner, is_lock, deadline_ms)
        return token

    def release(self, owner: str) -> None:
        """Ends `owner`'s lock, or its wait for one. Without either, does nothing."""
        self._held.pop(owner, None)
        for request in [r for r in self._waiting.values() if r.is_lock and r.owner == owner]:
            del self._waiting[request.token]

    def withdraw(self, token: int) -> bool:
        """Takes a request out of the queue; false if it is not waiting any more."""
        return self._waiting.pop(token, None) is not None

    def grant_locks(self) -> tuple[int, ...]:
        """Grants every lock that can be, and returns their tokens."""
        granted = []
        ahead: set[int] = set()
        for request in list(self._waiting.values()):
            if request.is_lock and not (
                request.shard_ids & ahead
                or request.shard_ids & self._in_flight
                or self._held_by_others(request)
            ):
                del self._waiting[request.token]
                self._held[str(request.owner)] = request.shard_ids
                granted.append(request.token)
            else:
                ahead |= request.shard_ids
        return tuple(granted)

    def ready_writes(self) -> tuple[int, ...]:
        """Tokens of the writes that may be taken now, in order."""
        return tuple(r.token for r in self._waiting.values() if self._may_write(r))

    def take_writes(self) -> tuple[int, ...]:
        """Takes the writes that may go: they are in flight until `finish_writes`."""
        tokens = self.ready_writes()
        taken = [self._waiting.pop(token) for token in tokens]
        self._in_flight = self._in_flight.union(*(r.shard_ids for r in taken))
        return tokens

    def finish_writes(self) -> None:
        """What was taken has been applied, or has failed for good."""
        self._in_flight = frozenset()

    def expire(self, now_ms: int) -> tuple[int, ...]:
        """Takes out the requests that a lock has kept waiting past their deadline."""
        ready = set(self.ready_writes())
        late = [
            r.token
            for r in self._waiting.values()
            if r.deadline_ms <= now_ms and r.token not in ready
        ]
        for token in late:
            del self._waiting[token]
        return tuple(late)

    def next_deadline_ms(self) -> int | None:
        return min((r.deadline_ms for r in self._waiting.values()), default=None)

    def waiting_tokens(self) -> frozenset[int]:
        return frozenset(self._waiting)

    def drain(self) -> tuple[int, ...]:
        """Empties the queue and forgets all locks; the tokens of what was waiting."""
        tokens = tuple(self._waiting)
        self._waiting.clear()
        self._held.clear()
        return tokens

    def _may_write(self, request: Request) -> bool:
        if request.is_lock:
            return False
        if request.owner is not None and request.owner in self._held:
            return True
        return not self._held_by_others(request) and not self._behind_a_lock(request)

    def _held_by_others(self, request: Request) -> bool:
        return any(
            owner != request.owner and request.shard_ids & held
            for owner, held in self._held.items()
        )

    def _behind_a_lock(self, request: Request) -> bool:
        return any(
            r.is_lock and r.token < request.token and r.shard_ids & request.shard_ids
            for r in self._waiting.values()
        )
