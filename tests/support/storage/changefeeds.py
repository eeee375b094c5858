"""CockroachDB as a changefeed's receiver sees it: transactions, feeds with faults, and the truth.

An upstream moves money between accounts that lie in several tables, so what all of them hold
together is the same after every transaction. Feeds deliver the tables' changes in messages, with
faults by a seed: messages come twice and out of order, a feed begins again where it had last
resolved, or says nothing for a while. `contents` is the truth at any time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random

from slackwater.repr.hlc import Time
from slackwater.storage.changefeed.encoding import offset

OPENING = 100
BEGIN_NANOS = 1_700_000_000_000_000_000
BEFORE = Time(BEGIN_NANOS - 1, 0)


@dataclass(frozen=True, slots=True)
class Change:
    """What a transaction leaves of a row; `after` None: nothing."""

    table: str
    key: int
    updated: Time
    after: dict | None

    def payload(self):
        return {
            "after": self.after,
            "key": [self.key],
            "topic": self.table,
            "updated": str(self.updated),
        }


@dataclass(frozen=True, slots=True)
class Message:
    """A request of a feed."""

    feed: str
    body: bytes
    resolved: Time | None = None


def columns():
    """The columns of each table, as a statement declares them."""
    return "(id BIGINT, owner STRING, balance BIGINT) KEY (id)"


class Upstream:
    """Transactions over `tables` tables of `accounts` accounts each."""

    def __init__(self, seed, tables=3, accounts=6):
        self.random = Random(seed)
        self.tables = [f"accounts_{number}" for number in range(tables)]
        self.total = tables * accounts * OPENING
        self.changes = []
        self._balances = {(t, k): OPENING for t in self.tables for k in range(accounts)}
        self._now = Time(BEGIN_NANOS, 0)
        self._commit(self._balances)

    @property
    def now(self):
        return self._now

    def transact(self):
        """Moves money between some accounts, and closes or opens one now and then."""
        self._tick()
        chosen = self.random.sample(
            sorted(self._balances), self.random.randint(2, min(4, len(self._balances)))
        )
        total = sum(self._balances[each] or 0 for each in chosen)
        closes = self.random.random() < 0.2
        after = {}
        for number, each in enumerate(chosen):
            left = len(chosen) - number
            part = total if left == 1 else self.random.randint(0, total)
            if number == 0 and closes:
                after[each], part = None, 0
            else:
                after[each] = part
            total -= part
        self._balances.update(after)
        self._commit(after)

    def contents(self, until):
        """The rows of each table by key, once all before the offset `until` has happened."""
        found = {table: {} for table in self.tables}
        for change in self.changes:
            if offset(change.updated) >= until:
                break
            if change.after is None:
                found[change.table].pop(change.key, None)
            else:
                found[change.table][change.key] = change.after
        return found

    def _tick(self):
        if self.random.random() < 0.3:
            self._now = self._now.next
        else:
            self._now = Time(self._now.nanos + self.random.randint(1, 10**6), 0)

    def _commit(self, balances):
        for (table, key), balance in balances.items():
            owner = f"owner of {key}, {self._now}"
            row = None if balance is None else {"id": key, "owner": owner, "balance": balance}
            self.changes.append(Change(table, key, self._now, row))


@dataclass(frozen=True, slots=True)
class Faults:
    """How often what goes wrong, in each round of a feed."""

    repeats: float = 0.3
    shuffles: float = 0.5
    restarts: float = 0.15
    stalls: float = 0.1
    holds_back: float = 0.3


NONE = Faults(0, 0, 0, 0, 0)


@dataclass(slots=True)
class Feed:
    """Delivers the changes of some tables. `round` gives what it sends next."""

    name: str
    tables: list
    random: Random
    faults: Faults = NONE
    resolved: Time = BEFORE
    stalled_for: int = 0
    _seen: int = 0
    _waiting: list = field(default_factory=list)
    _sent: list = field(default_factory=list)

    def round(self, upstream, *, is_last=False):
        """Messages in the order in which they are sent. The last round delivers all there is."""
        self._notice(upstream)
        if not is_last and self._is_stalled():
            return []
        if self._happens(self.faults.restarts):
            # From the last resolved time on, all of it again.
            again = [c for c in upstream.changes[: self._seen] if c.table in self.tables]
            self._waiting = [c for c in again if c.updated > self.resolved]
        changes, self._waiting = self._waiting, []
        holds_back = not is_last and self._happens(self.faults.holds_back)
        if holds_back and changes:
            cut = self.random.randint(0, len(changes))
            if self._happens(self.faults.shuffles):
                self.random.shuffle(changes)
            changes, self._waiting = changes[:cut], changes[cut:]
        elif self._happens(self.faults.shuffles):
            self.random.shuffle(changes)
        messages = self._messages(changes)
        if not holds_back:
            self.resolved = upstream.now
            messages.append(self._resolved(self.resolved))
        return messages

    def _notice(self, upstream):
        news = upstream.changes[self._seen :]
        self._waiting += [change for change in news if change.table in self.tables]
        self._seen = len(upstream.changes)

    def _is_stalled(self):
        if self.stalled_for == 0 and self._happens(self.faults.stalls):
            self.stalled_for = self.random.randint(1, 5)
        if self.stalled_for:
            self.stalled_for -= 1
            return True
        return False

    def _messages(self, changes):
        found = []
        while changes:
            size = self.random.randint(1, 5)
            batch, changes = changes[:size], changes[size:]
            payload = [change.payload() for change in batch]
            body = json.dumps({"payload": payload, "length": len(payload)}).encode()
            found.append(Message(self.name, body))
            self._sent.append(found[-1])
        if self._sent and self._happens(self.faults.repeats):
            again = self.random.choice(self._sent)
            found.insert(self.random.randint(0, len(found)), again)
        return found

    def _resolved(self, time):
        return Message(self.name, json.dumps({"resolved": str(time)}).encode(), time)

    def _happens(self, chance):
        return self.random.random() < chance


def feeds_of(upstream, partitions, faults, seed):
    """The tables of an upstream, divided among feeds."""
    return [
        Feed(
            f"feed-{number}",
            upstream.tables[number::partitions],
            Random(f"{seed}/{number}"),
            faults,
        )
        for number in range(partitions)
    ]
