"""The frontiers of the compute controller by their formulas, computed at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier


def behind(upper):
    return upper if upper.is_empty else Frontier(max(0, upper.value - 1))


@dataclass
class Expected:
    """A collection by the formulas, computed at once."""

    kind: str
    as_of: Frontier
    sources: tuple
    imports: tuple
    target: str | None = None
    policy: object = None
    dropped: bool = False
    read_only: bool = True

    def __post_init__(self):
        self.implied = self.warmup = self.write = self.as_of

    def follow(self, upper):
        if self.dropped:
            return
        wanted = behind(upper) if self.policy is None else self.policy.frontier(upper)
        self.implied = max(self.implied, wanted)

    def advance(self, upper):
        if upper > self.write:
            self.write = upper
            self.follow(upper)


class Model:
    """All frontiers, recomputed from nothing whenever one is asked for."""

    def __init__(self, stored):
        self.stored = stored
        self.collections: dict = {}
        self.tokens: dict = {}
        self.reached: dict = {}

    def multiset(self, name):
        each = self.collections[name]
        own = [] if each.dropped else [each.implied, each.warmup]
        below = [self.since(i) for i, other in self.collections.items() if name in other.imports]
        found = Counter(f.value for f in (*own, *below) if not f.is_empty)
        found.update(time for i, time in self.tokens.values() if i == name)
        return found

    def since(self, name):
        found = self.multiset(name)
        return Frontier(min(found)) if found else EMPTY_FRONTIER

    def maintain(self, has_replicas):
        for name, each in self.collections.items():
            if each.dropped:
                continue
            if each.target is not None:
                each.advance(self.stored.frontiers(each.target).upper)
            if self.since(name).is_empty:
                continue
            uppers = [self.stored.frontiers(i).upper for i in each.sources]
            uppers += [self.collections[i].write for i in each.imports]
            earliest = min(uppers, default=EMPTY_FRONTIER)
            ended = each.policy is None and each.write.is_empty
            each.warmup = max(each.warmup, EMPTY_FRONTIER if ended else behind(earliest))
            if each.policy is not None and not has_replicas:
                all_sources = {s for i in self.above(name) for s in self.collections[i].sources}
                stored = [self.stored.frontiers(i).upper for i in all_sources]
                each.follow(min(stored, default=EMPTY_FRONTIER))

    def above(self, name):
        """The collection and all that it reads, directly or not."""
        return {name}.union(*(self.above(i) for i in self.collections[name].imports))
