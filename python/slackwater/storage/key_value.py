"""The KEY VALUE load generator: keys in partitions, written again and again.

Partition p has the keys p, p + PARTITIONS, ... . Its messages are numbered from 0; message number
n is for the key number n modulo the number of its keys, so all keys have their turn in each round.
The first SNAPSHOT ROUNDS rounds are the snapshot: at one time if it is transactional, else each
round at a time of its own. After it, each tick brings BATCH SIZE messages of each partition;
without TICK INTERVAL nothing more comes. The positions of the source are (partition, number).

With ENVELOPE UPSERT a key has the row of its last message, with NONE every message is a row. The
value is a function of the seed and the position, so what a message replaces is computed again.

Source: surface 4.1; spec controllers 5.4.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import RelationDesc
from slackwater.storage.envelope import Message, Row, Update, appended, row_key, upserted
from slackwater.storage.ingestion import IngestionStep, SourceStatistics, SourceStatus
from slackwater.storage.source_time import Position, SourceFrontier

DESC = RelationDesc.of(key="long", partition="long", offset="long", batch="long", value="binary")
EXPORT = "key_value"
MAX_MISSED_TICKS = 100

_NOW = Timestamp(0)
"""A step is committed at one time, which its commit chooses."""


@dataclass(frozen=True, slots=True)
class KeyValueConfig:
    """`keys` is a multiple of `partitions`, and the keys of a partition one of `batch_size`.

    `tick_interval_ms` None: only the snapshot.
    """

    keys: int
    partitions: int
    snapshot_rounds: int
    value_size: int
    batch_size: int
    seed: int
    transactional_snapshot: bool = True
    tick_interval_ms: int | None = None
    envelope: Literal["NONE", "UPSERT"] = "UPSERT"

    @property
    def keys_per_partition(self) -> int:
        return self.keys // self.partitions

    @property
    def snapshot_end(self) -> int:
        """The first position of each partition behind the snapshot."""
        return self.keys_per_partition * self.snapshot_rounds

    def row(self, partition: int, number: int) -> Row:
        """The message at a position, by the columns of DESC."""
        key = number % self.keys_per_partition * self.partitions + partition
        drawn = hashlib.shake_128(f"{self.seed}/{partition}/{number}".encode())
        return (key, partition, number, number // self.batch_size, drawn.digest(self.value_size))


class KeyValueIngestion:
    """The ingestion of the generator. All its partitions go on together."""

    def __init__(
        self,
        config: KeyValueConfig,
        frontier: SourceFrontier | None = None,
        state: str | None = None,
    ) -> None:
        self._config = config
        self._reached = 0
        self._base_ms: int | None = None
        if frontier is not None and state is not None:
            self._continue_from(frontier, state)

    def poll(self, now_ms: int) -> IngestionStep | None:
        config = self._config
        if self._reached < config.snapshot_end:
            size = config.keys_per_partition
            if config.transactional_snapshot:
                size = config.snapshot_end
            following = self._reached + size
            # The first tick comes an interval after the snapshot.
            return self._step(following, now_ms)
        interval = config.tick_interval_ms
        if interval is None or self._base_ms is None:
            return None
        base = self._base_ms
        done = (self._reached - config.snapshot_end) // config.batch_size
        due = (now_ms - base) // interval - done
        if due > MAX_MISSED_TICKS:
            base += (due - MAX_MISSED_TICKS) * interval
            due = MAX_MISSED_TICKS
        if due <= 0:
            return None
        return self._step(self._reached + due * config.batch_size, base)

    def committed(self, step: IngestionStep) -> None:
        self._continue_from(step.frontier, step.state)

    def _continue_from(self, frontier: SourceFrontier, state: str) -> None:
        self._reached = frontier.positions[0].offset
        self._base_ms = json.loads(state)["base_ms"]

    def _step(self, following: int, base_ms: int) -> IngestionStep:
        """The messages up to `following` of each partition."""
        config = self._config
        updates = self._updates(following)
        rows = [(each.value, each.diff) for each in updates if isinstance(each.value, tuple)]
        whole = following >= config.snapshot_end
        received = (following - self._reached) * config.partitions
        return IngestionStep(
            updates={EXPORT: DESC.with_diffs(rows)},
            state=json.dumps({"base_ms": base_ms}),
            frontier=SourceFrontier.of(Position(p, following) for p in range(config.partitions)),
            status=SourceStatus("running" if whole else "starting"),
            statistics=SourceStatistics(
                messages_received=received,
                bytes_received=received * config.value_size,
                updates_staged=len(updates),
                offset_known=following * config.partitions,
                offset_committed=following * config.partitions,
                snapshot_committed=whole,
            ),
        )

    def _updates(self, following: int) -> tuple[Update, ...]:
        config = self._config
        if config.envelope == "NONE":
            return appended(self._messages(self._reached, following))
        # Of the messages for a key within a step only the last one counts.
        first = max(self._reached, following - config.keys_per_partition)
        before = dict(self._replaced(first, following))
        return upserted(before, self._messages(first, following)).updates

    def _messages(self, first: int, end: int) -> Iterator[Message]:
        for partition in range(self._config.partitions):
            for number in range(first, end):
                row = self._config.row(partition, number)
                yield Message(row_key(row[:1]), _NOW, Position(partition, number), row)

    def _replaced(self, first: int, end: int) -> Iterator[tuple[bytes, Row]]:
        """The rows of the keys of the messages from `first` to `end` before these."""
        config, size = self._config, self._config.keys_per_partition
        for partition in range(config.partitions):
            for number in range(first, end):
                last = self._reached - 1 - (self._reached - 1 - number) % size
                if last >= 0:
                    row = config.row(partition, last)
                    yield row_key(row[:1]), row
