"""Copies of topics for tables that their sources got later: what was there is read again.

The source goes on meanwhile. Each read goes towards where the source is then; a copy is whole at a
look at which it has all messages before that, and none behind. From there on the table takes what
the source reads.

Source: docs/decisions 0073.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from slackwater.storage.copying import Room
from slackwater.storage.kafka.envelopes import Envelope
from slackwater.storage.kafka.topic import Messages, Topic, Upstream

READ_MESSAGES = 20_000
WAIT_MS = 200


class Copy:
    """The messages before a frontier for one table. Not thread-safe."""

    def __init__(
        self, envelope: Envelope, upstream: Upstream, start_offsets: Sequence[int] = ()
    ) -> None:
        """`start_offsets` are those from which the source reads its first partitions."""
        self.envelope = envelope
        self._upstream = upstream
        self._start_offsets = dict(enumerate(start_offsets))
        self._positions: dict[int, int] = {}
        self._topic: Topic | None = None
        self._given: dict[int, int] = {}
        """The next offset that the client gives, of each partition that is assigned."""

    @property
    def read_so_far(self) -> int:
        """The number of offsets that it has passed."""
        return sum(self._positions.values())

    def read(self, until: Mapping[int, int], room: Room, check: Callable[[Topic], None]) -> bool:
        """Reads on towards these offsets. Whether exactly what is before them was taken now.

        `check` raises when the topic has become another one. No copy survives an error: another
        one begins anew. Raises `OffsetsLost`, and what the topic and the envelope raise.
        """
        topic = self._upstream.topic()
        self._begin(topic, until)
        lacking = {each: at for each, at in self._positions.items() if at < until[each]}
        if topic is not self._topic or any(self._given.get(p) != at for p, at in lacking.items()):
            # What an earlier read brought of messages behind its end was left out: they come again.
            topic.assign(lacking)
            self._topic, self._given = topic, dict(lacking)
        count = size_bytes = 0
        while lacking and count < room.messages and size_bytes < room.size_bytes:
            read = topic.read(READ_MESSAGES, WAIT_MS)
            messages = _before(read.messages, self._positions, until)
            if len(messages):
                self.envelope.take(messages)
            count += len(read.messages)
            size_bytes += read.messages.size_bytes
            self._given.update(read.positions)
            moved = {p: min(at, until[p]) for p, at in read.positions.items() if p in lacking}
            moved = {p: at for p, at in moved.items() if at > self._positions[p]}
            self._positions.update(moved)
            lacking = {each: at for each, at in self._positions.items() if at < until[each]}
            if not moved:
                break
        if lacking:
            return False
        check(topic)
        return True

    def close(self) -> None:
        """Ends what it has open."""
        self._upstream.forget()

    def _begin(self, topic: Topic, until: Mapping[int, int]) -> None:
        """Begins with partitions that are new to it; what retention has removed is not missed."""
        fresh = [each for each in until if each not in self._positions]
        if not fresh:
            return
        first = topic.beginnings(fresh)
        for each in fresh:
            self._positions[each] = min(
                until[each], max(self._start_offsets.get(each, 0), first[each])
            )


def _before(messages: Messages, reached: Mapping[int, int], until: Mapping[int, int]) -> Messages:
    """The messages from where the copy is, in each partition, to before these offsets."""
    places = [
        place
        for place, (partition, offset) in enumerate(messages.places())
        if reached[partition] <= offset < until[partition]
    ]
    if len(places) == len(messages):
        return messages
    return messages.at(places)
