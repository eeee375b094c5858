"""Copies of topics for tables that their sources got later: what was there is read again.

The source goes on meanwhile. Each read goes towards where the source is then; a copy is whole at a
look at which it has all messages before that, and none behind. From there on the table takes what
the source reads.

Source: docs/decisions 0073.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from slackwater.storage.kafka.envelopes import Envelope
from slackwater.storage.kafka.topic import Messages, Topic, Upstream

COPY_BYTES = 128 * 1024 * 1024
"""A read of a copy takes about so much, or less: twice what a step of the source takes, so that a
copy gets to a source that has as much to read as it can."""
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
        self.messages = 0

    @property
    def read_so_far(self) -> int:
        """The number of offsets that it has passed."""
        return sum(self._positions.values())

    def read(self, until: Mapping[int, int], check: Callable[[Topic], None]) -> bool:
        """Reads on towards these offsets. Whether exactly what is before them was taken now.

        `check` raises when the topic has become another one. No copy survives an error: another
        one begins anew. Raises `OffsetsLost`, and what the topic and the envelope raise.
        """
        topic = self._upstream.topic()
        self._begin(topic, until)
        lacking = {each: at for each, at in self._positions.items() if at < until[each]}
        if lacking:
            # What an earlier read brought of messages behind its end was left out: they come again.
            topic.assign(lacking)
        size_bytes = 0
        while lacking and size_bytes < COPY_BYTES:
            read = topic.read(READ_MESSAGES, WAIT_MS)
            messages = _before(read.messages, self._positions, until)
            if len(messages):
                self.envelope.take(messages)
                self.messages += len(messages)
            size_bytes += read.messages.size_bytes
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
