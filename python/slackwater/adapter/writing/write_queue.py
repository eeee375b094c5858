"""The order of writes and of write locks.

One FIFO queue of requests. A write may be taken unless a lock that another owner holds, or waits
for ahead of it, covers one of its shards. A lock is granted when no other owner's lock, no write in
flight and no earlier request touches its shards, so after the grant no write of others to them
commits until the release. Writes do not wait for each other: their diffs commute.

No deadlock: a lock is all or nothing, an owner has at most one, and the owner's writes stay within
it and never wait. Fair: whoever is ahead of a lock drains, whoever is behind waits.

The queue looks at the obstacles of a request when it comes, and again when a lock ends: so the cost
of a request depends on its shards and on the locks that wait, not on the number of waiting writes.

Source: spec coordinator 3.3 (all-or-nothing, here without the retry that optimism needs).
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass

from slackwater.repr.errors import FatalError


@dataclass(frozen=True, slots=True)
class QueuedRequest:
    """A write or a lock in the queue. `deadline_ms` is on the caller's monotonic clock."""

    token: int
    shard_ids: frozenset[int]
    owner: str | None
    is_lock: bool
    deadline_ms: int


class WriteQueue:
    """Decides only; knows no threads, no clock and no data. Callers serialise their calls."""

    def __init__(self) -> None:
        self._ready: dict[int, QueuedRequest] = {}
        self._blocked: dict[int, QueuedRequest] = {}
        self._locks: dict[int, QueuedRequest] = {}
        self._line: dict[int, dict[int, None]] = {}
        """For each shard, the tokens of the requests that wait for it, in order."""
        self._wanted: dict[int, int] = {}
        """For each shard, the number of locks that wait for it."""
        self._held: dict[str, frozenset[int]] = {}
        self._holder: dict[int, str] = {}
        self._in_flight: frozenset[int] = frozenset()
        self._deadlines: list[tuple[int, int]] = []
        self._next_token = 0

    def __len__(self) -> int:
        """The number of requests that wait."""
        return len(self._ready) + len(self._blocked) + len(self._locks)

    def offer_write(self, shard_ids: frozenset[int], owner: str | None, deadline_ms: int) -> int:
        """Queues a write and returns its token.

        Raises FatalError if `owner` holds a lock that does not cover the write: it could wait for
        an owner that waits for it.
        """
        held = self._held.get(owner) if owner is not None else None
        if held is not None and not shard_ids <= held:
            raise FatalError(f"{owner} writes {sorted(shard_ids - held)} outside of its lock")
        request = self._request(shard_ids, owner, is_lock=False, deadline_ms=deadline_ms)
        # All locks that wait are ahead of it.
        behind = held is None and any(shard in self._wanted for shard in shard_ids)
        waiting = self._blocked if behind or self._held_by_others(request) else self._ready
        waiting[request.token] = request
        return request.token

    def offer_lock(self, shard_ids: frozenset[int], owner: str, deadline_ms: int) -> int:
        """Queues a lock and returns its token. Raises FatalError if `owner` has one already."""
        if owner in self._held or any(r.owner == owner for r in self._locks.values()):
            raise FatalError(f"{owner} asks for a second write lock")
        request = self._request(shard_ids, owner, is_lock=True, deadline_ms=deadline_ms)
        self._locks[request.token] = request
        for shard in shard_ids:
            self._wanted[shard] = self._wanted.get(shard, 0) + 1
        return request.token

    def _request(
        self, shard_ids: frozenset[int], owner: str | None, *, is_lock: bool, deadline_ms: int
    ) -> QueuedRequest:
        token = self._next_token
        self._next_token += 1
        for shard in shard_ids:
            self._line.setdefault(shard, {})[token] = None
        heapq.heappush(self._deadlines, (deadline_ms, token))
        return QueuedRequest(token, shard_ids, owner, is_lock, deadline_ms)

    def release(self, owner: str) -> tuple[int, ...]:
        """Ends `owner`'s lock, or its wait for one; then returns the token of that request."""
        shards = self._held.pop(owner, None)
        for shard in shards or ():
            del self._holder[shard]
        waited = [r for r in self._locks.values() if r.owner == owner]
        for request in waited:
            self._remove(request)
        if shards is not None or waited:
            self._look_again()
        return tuple(request.token for request in waited)

    def withdraw(self, token: int) -> bool:
        """Takes a request out of the queue; False if it is not waiting any more."""
        request = self._find(token)
        if request is None:
            return False
        self._remove(request)
        if request.is_lock:
            self._look_again()
        return True

    def grant_locks(self) -> tuple[int, ...]:
        """Grants every lock that can be, and returns their tokens."""
        granted = []
        for request in list(self._locks.values()):
            if (
                all(next(iter(self._line[shard])) == request.token for shard in request.shard_ids)
                and not request.shard_ids & self._in_flight
                and not self._held_by_others(request)
            ):
                self._remove(request)
                owner = str(request.owner)
                self._held[owner] = request.shard_ids
                self._holder |= dict.fromkeys(request.shard_ids, owner)
                granted.append(request.token)
        if granted:
            self._look_again()
        return tuple(granted)

    def ready_writes(self) -> tuple[int, ...]:
        """Tokens of the writes that may be taken now, in order."""
        return tuple(sorted(self._ready))

    def has_ready_writes(self) -> bool:
        return bool(self._ready)

    def take_writes(self) -> tuple[int, ...]:
        """Takes the writes that may go: they are in flight until `finish_writes`."""
        tokens = self.ready_writes()
        taken = [self._ready[token] for token in tokens]
        for request in taken:
            self._remove(request)
        self._in_flight = self._in_flight.union(*(r.shard_ids for r in taken))
        return tokens

    def finish_writes(self) -> None:
        """Ends the flight of the writes that were taken: they are applied, or have failed."""
        self._in_flight = frozenset()

    def expire(self, now_ms: int) -> tuple[int, ...]:
        """Takes out the requests that a lock has kept waiting past their deadline."""
        late = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, token = heapq.heappop(self._deadlines)
            # A write that may go will go: nothing that comes later gets before it.
            if token not in self._ready and (request := self._find(token)) is not None:
                late.append(request)
        for request in late:
            self._remove(request)
        if any(request.is_lock for request in late):
            self._look_again()
        return tuple(sorted(request.token for request in late))

    def validate(self) -> None:
        """Raises `FatalError` when what it holds contradicts itself."""
        waiting = {**self._ready, **self._blocked, **self._locks}
        line: dict[int, dict[int, None]] = {}
        for token in sorted(waiting):
            for shard in waiting[token].shard_ids:
                line.setdefault(shard, {})[token] = None
        if {shard: tokens for shard, tokens in self._line.items() if tokens} != line:
            raise FatalError("the line of a shard is not that of the requests that wait for it")
        wanted = Counter(shard for lock in self._locks.values() for shard in lock.shard_ids)
        if wanted != self._wanted:
            raise FatalError(f"locks wait for {dict(wanted)}, and {self._wanted} was counted")
        holders = {shard: owner for owner, shards in self._held.items() for shard in shards}
        if holders != self._holder:
            raise FatalError("two owners hold the lock of a shard, or one that has no lock")
        stuck = [each.token for each in self._ready.values() if self._held_by_others(each)]
        if stuck:
            raise FatalError(f"the writes {stuck} are ready, and others hold their shards")

    def next_deadline_ms(self) -> int | None:
        """The next deadline of a request that waits; None: there is none."""
        while self._deadlines and self._find(self._deadlines[0][1]) is None:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def drain(self) -> tuple[int, ...]:
        """Empties the queue and forgets all locks; returns the tokens of what was waiting."""
        tokens = tuple(sorted([*self._ready, *self._blocked, *self._locks]))
        for found in (self._ready, self._blocked, self._locks, self._line, self._wanted):
            found.clear()
        self._held.clear()
        self._holder.clear()
        self._deadlines.clear()
        return tokens

    def _find(self, token: int) -> QueuedRequest | None:
        return self._ready.get(token) or self._blocked.get(token) or self._locks.get(token)

    def _remove(self, request: QueuedRequest) -> None:
        for waiting in (self._ready, self._blocked, self._locks):
            waiting.pop(request.token, None)
        for shard in request.shard_ids:
            line = self._line[shard]
            del line[request.token]
            if not line:
                del self._line[shard]
            if request.is_lock:
                self._wanted[shard] -= 1
                if not self._wanted[shard]:
                    del self._wanted[shard]

    def _look_again(self) -> None:
        """Sorts the waiting writes anew, since a lock has come or gone."""
        ahead: dict[int, int] = {}
        for token, lock in self._locks.items():
            for shard in lock.shard_ids:
                ahead.setdefault(shard, token)
        for request in list(self._blocked.values()):
            holds = request.owner is not None and request.owner in self._held
            behind = any(ahead.get(s, request.token) < request.token for s in request.shard_ids)
            if holds or not (behind or self._held_by_others(request)):
                del self._blocked[request.token]
                self._ready[request.token] = request

    def _held_by_others(self, request: QueuedRequest) -> bool:
        return any(
            self._holder.get(shard, request.owner) != request.owner for shard in request.shard_ids
        )
