"""What is shown of the partitions of changefeeds."""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.repr.hlc import Time
from slackwater.repr.ids import GlobalId
from slackwater.storage.changefeed.ingestion import FeedCounters


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """How one feed of a source stands. Times are None before the first; `waiting` are changes."""

    source_id: GlobalId
    partition: str
    status: str
    resolved: Time | None
    committed: Time | None
    proposed: Time | None
    waiting: int
    counters: FeedCounters
