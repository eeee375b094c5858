"""The KAFKA sink: which transactions a range of time becomes, and where a sink goes on.

A transaction has messages and a record of how far the sink is, in a topic of its own, the progress
topic: both are there or none is. So the topic is the authority; what the metastore has lags behind.
A range that is too large for one transaction becomes several, whose records say how many of the
range's messages are out.

Source: surface 4; docs/decisions 0070.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.frontier import Frontier
from slackwater.storage.kafka.sink_messages import Encoder, Outgoing
from slackwater.storage.sink_errors import progress_lost, unreachable
from slackwater.storage.sink_folder import IDLE_MOST_MS, IDLE_MS, Claim
from slackwater.storage.sink_rows import SinkRange
from slackwater.storage.sink_statistics import SinkStatistics

PIECE_MESSAGES = 100_000
"""The most messages of one transaction."""
PIECE_MS = 10_000
"""The time for which messages of one transaction are sent; brokers abort it after a minute."""
BATCH_MESSAGES = 2_000
"""So many messages are handed over before the time is looked at."""


class ProducerFenced(Exception):
    """Another producer with the same transactional id has begun."""


class SinkProducer(Protocol):
    """A producer of transactions, and the progress topic, for one sink. Not thread-safe.

    Each method raises `ProducerFenced`, and SLACKWATER_SINK_UNREACHABLE when it is not known
    whether it did something; then nothing else but `close` may be called.
    """

    def fence(self) -> None:
        """Keeps all earlier producers of the sink out; what they have sent is committed or not, and
        stays so."""
        ...

    def progress(self) -> bytes | None:
        """The last record of the sink that is committed. Raises SLACKWATER_SINK_PROGRESS_LOST when
        the topic cannot have it, and SLACKWATER_UNKNOWN_TOPIC when that of the messages is gone."""
        ...

    def begin(self) -> None:
        """Begins a transaction."""
        ...

    def send(self, messages: Outgoing) -> None:
        """Hands messages of the transaction over, about as fast as brokers take them."""
        ...

    def commit(self, progress: bytes) -> None:
        """Commits what was sent, and the record. Durable on return."""
        ...

    def close(self) -> None:
        """Ends the producer. What is not committed never is."""
        ...


@dataclass(frozen=True, slots=True)
class Pending:
    """A range of which the first `sent` messages are out."""

    lower: Frontier
    upper: Frontier
    sent: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The record of a sink in the progress topic.

    `frontier`: every update before it is out; None: the sink has not begun, or is in the middle of
    its first range.
    """

    frontier: Frontier | None
    pending: Pending | None
    version: int
    epoch: int

    def encoded(self) -> bytes:
        """The record's value."""
        pending = self.pending
        begun = None
        if pending is not None:
            begun = {
                "lower": pending.lower.value,
                "upper": pending.upper.value,
                "sent": pending.sent,
            }
        frontier = None if self.frontier is None else self.frontier.value
        found = {"frontier": frontier, "range": begun}
        return json.dumps({**found, "version": self.version, "epoch": self.epoch}).encode()


def decoded(value: bytes) -> Progress:
    """The record with that value. Raises ValueError."""
    try:
        found = json.loads(value)
        frontier, begun = found["frontier"], found["range"]
        pending = None
        if begun is not None:
            pending = Pending(
                Frontier(int(begun["lower"])), Frontier(int(begun["upper"])), int(begun["sent"])
            )
        return Progress(
            None if frontier is None else Frontier(int(frontier)),
            pending,
            int(found["version"]),
            int(found["epoch"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{error!r} in {value[:100]!r}") from None


@dataclass(frozen=True, slots=True)
class SinkTopic:
    """The names of a sink's topics, for messages. `version` is that of the sink's definition: it
    grows each time that the sink goes on with another relation."""

    topic: str
    progress_topic: str
    version: int = 0


class KafkaSink:
    """An open sink. One writer at a time; after an error it is of no use any more."""

    def __init__(
        self,
        encoder: Encoder,
        named: SinkTopic,
        claim: Claim,
        producer: SinkProducer,
        *,
        snapshot: bool,
        clock: Callable[[], int],
        is_stopped: Callable[[], bool],
    ) -> None:
        """Keeps earlier writers out, and then reads what the sink has committed so far.

        That order is what makes a commit on its way count. Then it is asked who leads: of two that
        begin at once, the one that does not lead any more writes nothing. Raises `Fenced`,
        SLACKWATER_SINK_PROGRESS_LOST, SLACKWATER_SINK_UNREACHABLE.
        """
        self._encoder = encoder
        self._named = named
        self._claim = claim
        self._producer = producer
        self._snapshot = snapshot
        self._clock = clock
        self._is_stopped = is_stopped
        with self._asking_who_leads():
            producer.fence()
            found = producer.progress()
        claim.confirm()
        self._state = self._checked(found)
        self._reached = self._state.frontier
        self._silent_ms = IDLE_MS
        self._told_ms = clock()
        self._statistics = SinkStatistics()

    @property
    def frontier(self) -> Frontier | None:
        """Every update before this time is durably out. None: the sink has not begun."""
        return self._state.frontier

    @property
    def is_due(self) -> bool:
        """Whether another range may be written now: always."""
        return True

    def end_of_range(self, upper: Frontier) -> Frontier:
        """The end of the next range, which may be `upper`: a range that was begun is finished."""
        pending = self._state.pending
        return upper if pending is None else pending.upper

    @property
    def statistics(self) -> SinkStatistics:
        """The counts of this writer."""
        return self._statistics

    @property
    def is_in_range(self) -> bool:
        """Whether a part of a range is out."""
        return self._state.pending is not None

    def write(self, lower: Frontier, upper: Frontier, updates: Iterable[pa.Table]) -> None:
        """Commits all updates with lower <= __time < upper, as `FilesSink.write` says.

        When the sink is to stop, it does so between two transactions: then a part is out. Raises
        SLACKWATER_SINK_KEY when two rows have one key (nothing of the range is written),
        SLACKWATER_SINK_UNREACHABLE, and `Fenced`. FatalError when the range leaves a gap.
        """
        asked = SinkRange(lower, upper, self._reached)
        asked.refuse_gap(self._claim.name)
        pending = self._state.pending
        if pending is not None and upper != pending.upper:
            raise FatalError(f"{self._claim.name}: a range to {upper} was begun to {pending.upper}")
        if asked.is_out:
            return
        rows = asked.rows(self._encoder.desc, updates, snapshot=self._snapshot)
        messages = self._encoder.messages(rows)
        if self._commit(messages, asked.start, upper):
            self._reached = upper
            if asked.begins:
                self.flush()

    def tell(self) -> None:
        """Records how far the sink is while nothing changes: after 1, 2, 4 and more seconds."""
        if self._state.frontier == self._reached:
            return
        if 0 <= self._clock() - self._told_ms < self._silent_ms:
            return
        self.flush()
        self._silent_ms = min(2 * self._silent_ms, IDLE_MOST_MS)

    def flush(self) -> None:
        """Makes the frontier of empty ranges durable. Raises what `write` raises."""
        if self._reached is None or self._state.frontier == self._reached or self.is_in_range:
            return
        with self._transaction():
            self._record(self._at(self._reached, None))

    def close(self) -> None:
        """Ends this writer. What it has committed stays."""
        self._producer.close()

    def _commit(self, messages: Outgoing, lower: Frontier, upper: Frontier) -> bool:
        """Whether all messages are out."""
        pending = self._state.pending
        sent = 0 if pending is None else pending.sent
        if sent > len(messages):
            raise self._lost(f"it says that {sent} messages are out of {len(messages)}")
        if self._has_snapshot:
            self._statistics = self._statistics.and_of_snapshot(sent, len(messages))
        while sent < len(messages) or (sent and self.is_in_range):
            with self._transaction():
                sent = self._send(messages, sent)
                is_whole = sent == len(messages)
                part = None if is_whole else Pending(lower, upper, sent)
                reached = upper if is_whole else self._state.frontier
                self._record(self._at(reached, part))
            if not is_whole and self._is_stopped():
                return False
        if messages:
            self._silent_ms = IDLE_MS
        return True

    def _send(self, messages: Outgoing, sent: int) -> int:
        """Sends as many as one transaction takes; how many are sent then in all."""
        end, began = min(len(messages), sent + PIECE_MESSAGES), self._clock()
        while sent < end:
            batch = min(end, sent + BATCH_MESSAGES)
            piece = messages.piece(sent, batch)
            self._producer.send(piece)
            self._statistics = self._statistics.and_staged(len(piece), piece.size_bytes)
            sent = batch
            if self._has_snapshot:
                self._statistics = self._statistics.and_of_snapshot(sent)
            if self._clock() - began >= PIECE_MS:
                break
        return sent

    @property
    def _has_snapshot(self) -> bool:
        """Whether the range that is written is the first one, with the snapshot."""
        return self._snapshot and self._reached is None

    def _at(self, frontier: Frontier | None, pending: Pending | None) -> Progress:
        return Progress(frontier, pending, self._named.version, self._claim.epoch)

    def _record(self, state: Progress) -> None:
        self._producer.commit(state.encoded())
        self._state = state
        self._statistics = self._statistics.and_committed()
        self._told_ms = self._clock()

    def _checked(self, found: bytes | None) -> Progress:
        """The state from which this writer goes on."""
        version, claim = self._named.version, self._claim
        if found is None:
            if claim.progress is not None:
                raise self._lost(f"it says nothing, and all before {claim.progress.value} is out")
            return Progress(None, None, version, claim.epoch)
        try:
            state = decoded(found)
        except ValueError as error:
            raise self._lost(f"its record is none of a sink: {error}") from None
        if state.version > version or state.epoch > claim.epoch:
            raise self._lost(
                f"it has a record of epoch {state.epoch} and version {state.version}, and this is "
                f"epoch {claim.epoch} and version {version}: another copy of the environment writes"
            )
        if state.pending is not None and state.version != version:
            raise self._lost("a range of the relation before is out in part")
        if claim.progress is not None and (
            state.frontier is None or state.frontier < claim.progress
        ):
            known = "nothing" if state.frontier is None else f"{state.frontier.value}"
            raise self._lost(f"it knows of {known}, and all before {claim.progress.value} is out")
        return state

    def _lost(self, reason: str) -> SlackwaterError:
        place = f"the progress topic {self._named.progress_topic}"
        return progress_lost(self._claim.name, place, reason)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One transaction, which its block commits."""
        with self._asking_who_leads():
            self._producer.begin()
            is_committed = False
            try:
                yield
                is_committed = True
            finally:
                self._statistics = self._statistics.and_transaction(committed=is_committed)

    @contextmanager
    def _asking_who_leads(self) -> Iterator[None]:
        """Asks whether this leader still leads before it says that something failed.

        librdkafka does not always tell that another producer has come: what it was about to do may
        fail in other ways then.
        """
        with self._claim.asked_first():
            try:
                yield
            except ProducerFenced:
                reason = "another producer with its transactional id has begun"
                place = f"the topic {self._named.topic}"
                raise unreachable(self._claim.name, place, reason) from None
