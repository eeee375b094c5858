"""The partitions of changefeeds, as a system relation shows them."""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.repr.hlc import Time
from slackwater.repr.ids import GlobalId
from slackwater.storage.changefeed.ingestion import FeedCounters


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """The progress of one feed of a source. Times are None before the first.

    `waiting` counts the changes that wait.
    """

    source_id: GlobalId
    partition: str
    status: str
    resolved: Time | None
    committed: Time | None
    proposed: Time | None
    waiting: int
    counters: FeedCounters
