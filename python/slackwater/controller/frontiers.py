"""The frontiers of a collection, as one controller tells them to another. Source: spec 1.4."""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.repr.frontier import Frontier


@dataclass(frozen=True, slots=True)
class CollectionFrontiers:
    """From `since` on the collection can be read, and before `upper` it is complete.

    `is_dropped`: only holds keep it, and nobody new can read it.
    """

    since: Frontier
    upper: Frontier
    is_dropped: bool = False
