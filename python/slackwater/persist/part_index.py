"""The parts of one shard in memory, found by time without looking at all of them.

Appends come in the order of time, so their time ranges are disjoint, except within one append and
after a merge. Parts are therefore kept in *runs*: within a run both bounds ascend, so a range is
two bisections. The number of runs is the greatest number of parts that overlap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field

from slackwater.persist.parts import FileBody, Part
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Timestamp


def _first(part: Part) -> tuple[Timestamp, int]:
    return part.min_time, part.part_id


@dataclass(slots=True)
class _SortedRun:
    parts: list[Part] = field(default_factory=list)
    firsts: list[Timestamp] = field(default_factory=list)
    lasts: list[Timestamp] = field(default_factory=list)

    def takes(self, part: Part) -> bool:
        if not self.parts:
            return True
        return self.firsts[-1] <= part.min_time and self.lasts[-1] <= part.min_time

    def append(self, part: Part) -> None:
        self.parts.append(part)
        self.firsts.append(part.min_time)
        self.lasts.append(part.max_time)

    def between(self, lower: Timestamp, upper: Timestamp) -> list[Part]:
        return self.parts[bisect_left(self.lasts, lower) : bisect_left(self.firsts, upper)]


@dataclass(slots=True)
class _Pairs:
    """Parts that a later, exact negation takes back: present in ``[time, end)`` only."""

    ends: list[Timestamp] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)

    def add(self, part: Part, end: Timestamp) -> None:
        position = bisect_right(self.ends, end)
        self.ends.insert(position, end)
        self.parts.insert(position, part)

    def present(self, as_of: Timestamp) -> Iterator[Part]:
        position = bisect_right(self.ends, as_of)
        return (part for part in self.parts[position:] if part.min_time <= as_of)


@dataclass(slots=True)
class PartIndex:
    """All parts of a shard. Not thread-safe; what it returns never changes afterwards."""

    _runs: list[_SortedRun] = field(default_factory=list)
    _unpaired: list[Part] = field(default_factory=list)
    _pairs: _Pairs = field(default_factory=_Pairs)
    _open: dict[tuple[str, int], list[Part]] = field(default_factory=dict)

    @staticmethod
    def of(parts: Iterable[Part]) -> PartIndex:
        """An index of the parts, which may come in any order."""
        index = PartIndex()
        for part in sorted(parts, key=_first):
            index.add(part)
        return index

    def add(self, part: Part) -> None:
        """Adds a part whose times are not before those that are here."""
        run = next((run for run in self._runs if run.takes(part)), None)
        if run is None:
            run = _SortedRun()
            self._runs.append(run)
        run.append(part)
        if not self._take_back(part):
            self._unpaired.insert(bisect_right(self._unpaired, _first(part), key=_first), part)

    def at(self, as_of: Timestamp) -> tuple[Part, ...]:
        """The parts that have something present at `as_of`, ordered by time.

        A uniform file part and its exact negation are both left out once both are at or before
        `as_of`. Cost: the result, and the pairs whose negation is after `as_of`.
        """
        stop = bisect_right(self._unpaired, as_of, key=lambda part: part.min_time)
        present = list(self._pairs.present(as_of))
        if not present:
            return tuple(self._unpaired[:stop])
        return tuple(sorted([*self._unpaired[:stop], *present], key=_first))

    def between(self, lower: Timestamp, upper: Timestamp) -> tuple[Part, ...]:
        """The parts whose time range meets ``[lower, upper)``, ordered by time."""
        if lower >= upper:
            return ()
        if len(self._runs) == 1:
            return tuple(self._runs[0].between(lower, upper))
        found = (part for run in self._runs for part in run.between(lower, upper))
        return tuple(sorted(found, key=_first))

    def parts(self) -> tuple[Part, ...]:
        """All parts, ordered by time."""
        return tuple(sorted((part for run in self._runs for part in run.parts), key=_first))

    def replaced(self, removed: Set[int], added: Iterable[Part]) -> PartIndex:
        """A new index without the parts whose ids are `removed` and with `added`."""
        kept = (part for part in self.parts() if part.part_id not in removed)
        return PartIndex.of([*kept, *added])

    def validate(self) -> None:
        """Raises FatalError unless runs ascend, and each part is present or taken back."""
        for run in self._runs:
            firsts, lasts = [p.min_time for p in run.parts], [p.max_time for p in run.parts]
            if firsts != run.firsts or lasts != run.lasts:
                raise FatalError("the bounds of a run are not those of its parts")
            if firsts != sorted(firsts) or lasts != sorted(lasts):
                raise FatalError("a run does not ascend")
        if self._unpaired != sorted(self._unpaired, key=_first):
            raise FatalError("the parts that are not taken back are not in the order of time")
        if len(self.parts()) != len(self._unpaired) + 2 * len(self._pairs.parts):
            raise FatalError("a part is neither present nor taken back")

    def _take_back(self, part: Part) -> bool:
        """Pairs a uniform part with the one that it negates."""
        match part.body:
            case FileBody(uri, _, _, uniform) if uniform is not None:
                opposite = self._open.get((uri, -uniform.diff))
                if not opposite:
                    self._open.setdefault((uri, uniform.diff), []).append(part)
                    return False
                negated = opposite.pop()
                position = bisect_left(self._unpaired, _first(negated), key=_first)
                del self._unpaired[position]
                self._pairs.add(negated, part.min_time)
                return True
        return False
