"""The core of the history of dataflows: their last ticks, and when they were hydrated.

No clocks, threads, files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from slackwater.adapter.history.core import DAY_MS
from slackwater.compute.records import KEPT, HydrationRecord, TickRecord
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId


@dataclass(frozen=True, slots=True)
class Ticked:
    """A tick that a replica has committed."""

    replica: str
    record: TickRecord

    @property
    def ended_ms(self) -> int:
        return self.record.committed_ms


@dataclass(frozen=True, slots=True)
class Hydrated:
    """The hydration of a dataflow on a replica of a cluster, which is over."""

    replica: str
    cluster: str
    record: HydrationRecord

    @property
    def ended_ms(self) -> int:
        return self.record.hydrated_ms or self.record.installed_ms


Kept = Ticked | Hydrated

_Of = tuple[str, GlobalId, str]
"""The kind of a record, its dataflow, its replica."""


@dataclass(frozen=True, slots=True)
class DataflowLimits:
    """The most records that are kept of all dataflows, and for how long."""

    records: int = 10_000
    age_ms: int = DAY_MS


class DataflowCore:
    """The last records of an environment's dataflows. One caller at a time.

    For each dataflow and replica that has it, the last 32 ticks and the last 32 hydrations. Of more
    records than `limits` say, those go whose dataflow has had none for the longest.
    """

    def __init__(self, limits: DataflowLimits) -> None:
        self._limits = limits
        self._records: dict[_Of, dict[Timestamp, Kept]] = {}
        self._unstored: set[tuple[_Of, Timestamp]] = set()
        self._count = 0

    def records(self, now: Iterable[Kept] = ()) -> tuple[Kept, ...]:
        """All that is known, and what there is `now`, which is not noted.

        Of each dataflow and replica the earliest comes first.
        """
        found = {of: dict(known) for of, known in self._records.items()}
        for each in now:
            of, number = _key(each)
            found.setdefault(of, {})[number] = each
        return tuple(each for known in found.values() for each in _last(known).values())

    def observe(self, told: Iterable[Kept], now_ms: int) -> None:
        """Notes what replicas tell. They tell the same again and again."""
        for each in told:
            if self._add(each):
                self._unstored.add(_key(each))
        self.forget_old(now_ms)

    def take_over(self) -> tuple[Kept, ...]:
        """The records that are to be stored now."""
        taken = tuple(self._records[of][number] for of, number in sorted(self._unstored))
        self._unstored.clear()
        return taken

    def put_back(self, records: Iterable[Kept]) -> None:
        """Gives back records that could not be stored."""
        keys = map(_key, records)
        self._unstored |= {key for key in keys if key[1] in self._records.get(key[0], {})}

    def recover(self, records: Iterable[Kept], now_ms: int) -> None:
        """Takes what leaders before have stored, in any order. Idempotent."""
        for each in records:
            self._add(each)
        self.forget_old(now_ms)

    def forget_old(self, now_ms: int) -> None:
        """Forgets what is older or more than the limits allow."""
        for of, known in tuple(self._records.items()):
            oldest_ms = now_ms - self._limits.age_ms
            last = {n: each for n, each in _last(known).items() if each.ended_ms >= oldest_ms}
            self._replace(of, last)
        quiet = sorted(self._records, key=lambda of: _ended_ms(self._records[of]), reverse=True)
        while self._count > self._limits.records:
            self._replace(quiet.pop(), {})

    def _add(self, record: Kept) -> bool:
        """Whether it was not known."""
        of, number = _key(record)
        known = self._records.setdefault(of, {})
        is_new = number not in known
        known[number] = record
        self._count += is_new
        return is_new

    def _replace(self, of: _Of, last: dict[Timestamp, Kept]) -> None:
        known = self._records.pop(of)
        self._unstored -= {(of, number) for number in known.keys() - last.keys()}
        self._count -= len(known) - len(last)
        if last:
            self._records[of] = last

    def validate(self) -> None:
        """Raises FatalError when an invariant is broken."""
        if self._count != sum(map(len, self._records.values())):
            raise FatalError("the records of dataflows are counted wrongly")
        if not self._unstored <= {(of, n) for of, known in self._records.items() for n in known}:
            raise FatalError("a record of a dataflow that is not known is to be stored")
        if self._count > self._limits.records:
            raise FatalError("the history of dataflows has more records than it may")


def _key(record: Kept) -> tuple[_Of, Timestamp]:
    """The kind, dataflow and replica of a record, and its number there; later ones have higher."""
    match record:
        case Ticked(replica, tick):
            return ("tick", tick.global_id, replica), tick.upper
        case Hydrated(replica, _, hydration):
            return ("hydration", hydration.global_id, replica), Timestamp(hydration.installed_ms)


def _last(known: Mapping[Timestamp, Kept]) -> dict[Timestamp, Kept]:
    return dict(sorted(known.items())[-KEPT:])


def _ended_ms(known: Mapping[Timestamp, Kept]) -> int:
    return max(each.ended_ms for each in known.values())


def ticks(records: Iterable[Kept]) -> Iterator[Ticked]:
    """The ticks among the records."""
    return (each for each in records if isinstance(each, Ticked))


def hydrations(records: Iterable[Kept]) -> Iterator[Hydrated]:
    """The hydrations among the records."""
    return (each for each in records if isinstance(each, Hydrated))
