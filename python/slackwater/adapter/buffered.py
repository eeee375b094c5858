"""A write whose rows are known and whose time is not yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slackwater.persist.parts import NewPart
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId

PartsAt = Callable[[Timestamp], Sequence[NewPart]]


@dataclass(frozen=True, slots=True)
class BufferedWrite:
    """What one statement writes to one table. `name` is qualified, for messages.

    `parts_at(t)` gives the parts that make the write happen at t. It may be asked again with a
    later time when a commit did not happen.
    """

    table: GlobalId
    name: str
    parts_at: PartsAt
    inserted: int
    deleted: int
