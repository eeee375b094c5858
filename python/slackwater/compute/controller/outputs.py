"""Commits of what replicas computed: the first that offers an interval wins it.

A replica computes, and the leader commits. Source: spec controllers 4.4, 4.5; the interval of a
commit begins where the stored output ends, so it is committed once, and none is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from slackwater.compute.controller.effects import CommitOutput
from slackwater.compute.controller.protocol import Computed
from slackwater.controller.protocol import ReplicaKey
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Frontier
from slackwater.repr.ids import GlobalId


@dataclass(slots=True)
class Outputs:
    """Commits that were handed out and not answered. Not thread-safe.

    A commit begins where the one before it ends, so that several can be under way. It does not
    guarantee that a commit succeeds: the shards refuse one that overtakes another, and all that
    follow a refused one.
    """

    _open: dict[int, CommitOutput] = field(default_factory=dict)
    _under_way: dict[GlobalId, list[int]] = field(default_factory=dict)
    _next_ticket: int = 1

    def expected(self, global_id: GlobalId, stored: Frontier) -> Frontier:
        """The frontier at which the next commit begins, if the output is `stored` now."""
        tickets = self._under_way.get(global_id)
        return self._open[tickets[-1]].upper if tickets else stored

    def is_under_way(self, global_id: GlobalId) -> bool:
        """True while a commit for the export has no answer."""
        return global_id in self._under_way

    def offer(
        self, computed: Computed, target: GlobalId, stored: Frontier, replica: ReplicaKey
    ) -> CommitOutput | None:
        """The commit of what was computed; None if it begins anywhere but where it must."""
        if computed.lower != self.expected(computed.id, stored):
            return None
        commit = CommitOutput(
            self._next_ticket,
            computed.id,
            target,
            computed.lower,
            computed.upper,
            computed.rows,
            computed.errors,
            replica,
        )
        self._next_ticket += 1
        self._open[commit.ticket] = commit
        self._under_way.setdefault(computed.id, []).append(commit.ticket)
        return commit

    def close(self, ticket: int) -> CommitOutput | None:
        """The commit has its answer; None if it had one."""
        commit = self._open.pop(ticket, None)
        if commit is not None:
            tickets = self._under_way[commit.id]
            tickets.remove(ticket)
            if not tickets:
                del self._under_way[commit.id]
        return commit

    def validate(self) -> None:
        """Raises FatalError unless the commits of each export follow on one another."""
        for global_id, tickets in self._under_way.items():
            commits = [self._open[each] for each in tickets]
            for before, after in pairwise(commits):
                if before.upper > after.lower or after.id != global_id:
                    raise FatalError(f"{after} overlaps with {before}")
