"""Reclocking against its definition, over random histories of partitioned sources."""

from dataclasses import dataclass

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.property.histories import histories

from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier
from slackwater.storage.reclock import BeyondUpper, BindingUpdate, Remap, Uninitialized, remap_diff
from slackwater.storage.source_time import Position, SourceFrontier, Unread


@dataclass(frozen=True)
class History:
    """A remap as it was minted: `steps` are (time, offset of each partition), both rising.

    `partitions` None: later steps may have more partitions than those before.
    """

    partitions: int | None
    steps: tuple
    updates: tuple
    upper: Frontier

    @property
    def minimum(self):
        return SourceFrontier.minimum(self.partitions)

    @property
    def remap(self):
        return self.compacted(Frontier(0))

    def compacted(self, since):
        return Remap.of_updates(self.updates, self.minimum, since, self.upper)

    def messages(self):
        """Every message that was bound, with its time by the definition."""
        found = {}
        for time, offsets in self.steps:
            for partition, offset in enumerate(offsets):
                for number in range(offset):
                    found.setdefault(Position(partition, number), time)
        return found


def frontier(offsets, grows=False):
    unread = [Unread(len(offsets))] if grows else []
    return SourceFrontier.of([*unread, *(Position(p, each) for p, each in enumerate(offsets))])


@st.composite
def minted(draw, least=1):
    grows = draw(st.booleans())
    partitions = draw(st.integers(0 if grows else 1, 3))
    offsets, time, steps, updates = (0,) * partitions, 0, [], []
    for _ in range(draw(st.integers(least, 8))):
        before = frontier(offsets, grows) if steps else None
        offsets += (0,) * (draw(st.integers(0, 2)) if grows else 0)
        more = draw(st.tuples(*[st.integers(0, 4)] * len(offsets)))
        offsets = tuple(a + b for a, b in zip(offsets, more, strict=True))
        time += draw(st.integers(0, 5))
        if before == frontier(offsets, grows):
            continue
        changes = remap_diff(before, frontier(offsets, grows))
        updates += [BindingUpdate(position, time, diff) for position, diff in changes]
        steps.append((time, offsets))
        time += 1
    return History(None if grows else partitions, tuple(steps), tuple(updates), Frontier(time))


def time_of(remap, position):
    """The time of a message: the least at which the remap does not allow it; None: not bound."""
    return next((b.time for b in remap.bindings if not b.frontier.allows(position)), None)


times = st.integers(0, 60).map(Frontier)


@histories()
@given(minted())
def test_i49_the_remap_is_a_rising_antichain_with_multiplicity_one(history):
    remap = history.remap
    assert [b.time for b in remap.bindings] == [time for time, _ in history.steps]
    for time, offsets in history.steps:
        held = {}
        for update in history.updates:
            if update.time <= time:
                held[update.element] = held.get(update.element, 0) + update.diff
        held = {position: count for position, count in held.items() if count}
        expected = frontier(offsets, history.partitions is None)
        assert held == dict.fromkeys(expected.elements, 1)
    for earlier, later in zip(remap.bindings, remap.bindings[1:], strict=False):
        assert earlier.time < later.time
        assert earlier.frontier.before(later.frontier)


DAMAGE = [
    [BindingUpdate(Position(0, 3), 5, 2)],
    [BindingUpdate(Position(0, 3), 5, -1)],
    [BindingUpdate(Position(0, 3), 5, 1), BindingUpdate(Position(0, 4), 6, 1)],
    [
        BindingUpdate(Position(0, 3), 5, 1),
        BindingUpdate(Position(0, 3), 6, -1),
        BindingUpdate(Position(0, 2), 6, 1),
    ],
    [BindingUpdate(Position(0, 3), 10, 1)],
]


@pytest.mark.parametrize("updates", DAMAGE)
def test_i49_a_damaged_remap_is_refused(updates):
    with pytest.raises(FatalError):
        Remap.of_updates(updates, SourceFrontier.minimum(), Frontier(0), Frontier(10))


@histories()
@given(minted(), st.randoms())
def test_i50_a_message_gets_the_same_time_whoever_asks_and_when(history, random):
    updates = list(history.updates)
    random.shuffle(updates)
    again = Remap.of_updates(updates, history.minimum, Frontier(0), history.upper)
    assert again == history.remap
    for message, time in history.messages().items():
        assert time_of(history.remap, message) == time
        # A process that has seen less of the remap either agrees or does not know.
        seen = [u for u in updates if u.time < time]
        earlier = Remap.of_updates(seen, history.minimum, Frontier(0), Frontier(time))
        assert time_of(earlier, message) is None
        seen = [u for u in updates if u.time <= time]
        enough = Remap.of_updates(seen, history.minimum, Frontier(0), Frontier(time + 1))
        assert time_of(enough, message) == time


@histories()
@given(minted(), times, st.integers(0, 20))
def test_i51_resuming_brings_exactly_the_missing_updates(history, resume, compaction):
    """The source is read again from `source_upper_at_frontier`, also on a compacted remap."""
    assume(resume <= history.upper)
    # I52: the remap is never compacted up to the upper of an export.
    assume(compaction < resume.value or resume.value == 0)
    remap = history.compacted(Frontier(min(compaction, max(0, resume.value - 1))))
    messages = history.messages()
    durable = {message for message, time in messages.items() if time < resume.value}
    start = remap.source_upper_at_frontier(resume)
    read = [message for message in messages if start.allows(message)]
    emitted = {m for m in read if time_of(remap, m) >= resume.value}
    assert durable | emitted == set(messages)
    assert durable & emitted == set()
    if resume.value > remap.since.value:
        # Nothing that is durable is even read again.
        assert set(read) == emitted


@histories()
@given(minted(), times)
def test_i53_reclocking_and_compacting_commute(history, since):
    compacted = history.compacted(since)
    for message, time in history.messages().items():
        assert time_of(compacted, message) == max(time, since.value)


@histories()
@given(minted(), times)
def test_the_frontier_in_the_source_follows_the_frontier_in_time(history, asked):
    remap = history.remap
    if asked > remap.upper:
        with pytest.raises(BeyondUpper):
            remap.source_upper_at_frontier(asked)
        return
    passed = [offsets for time, offsets in history.steps if time < asked.value]
    grows = history.partitions is None
    expected = frontier(passed[-1], grows) if passed else SourceFrontier.minimum(history.partitions)
    assert remap.source_upper_at_frontier(asked) == expected
    assert remap.source_upper_at_frontier(remap.upper) == remap.bindings[-1].frontier
    assert remap.source_upper_at_frontier(EMPTY_FRONTIER).is_empty


def test_before_the_first_binding_nothing_is_known():
    remap = Remap.of_updates([], SourceFrontier.minimum(2), Frontier(0), Frontier(7))
    with pytest.raises(Uninitialized):
        remap.source_upper_at_frontier(Frontier(7))


def test_a_source_that_has_ended_is_bound_to_the_empty_frontier():
    updates = [
        BindingUpdate(position, time, diff)
        for time, before, after in (
            (3, None, SourceFrontier.at(4)),
            (8, SourceFrontier.at(4), SourceFrontier(())),
        )
        for position, diff in remap_diff(before, after)
    ]
    remap = Remap.of_updates(updates, SourceFrontier.minimum(), Frontier(0), Frontier(9))
    assert remap.source_upper_at_frontier(Frontier(9)).is_empty
    assert time_of(remap, Position(0, 900)) == 8


def test_what_was_read_cannot_become_unread():
    with pytest.raises(FatalError):
        remap_diff(SourceFrontier.at(5), SourceFrontier.at(4))


@histories()
@given(*[st.lists(st.integers(0, 2), max_size=4)] * 2)
def test_frontiers_of_partitions_that_are_added_compare_by_what_they_allow(first, second):
    one, other = frontier(first, grows=True), frontier(second, grows=True)
    asked = [Position(partition, offset) for partition in range(6) for offset in range(4)]
    allowed = [{each for each in asked if every.allows(each)} for every in (one, other)]
    assert one.not_after(other) == (allowed[1] <= allowed[0])
    assert (one == other) == (allowed[0] == allowed[1])
    assert SourceFrontier.minimum(None).not_after(one)
    assert not frontier(first).not_after(one)


def test_a_partition_that_was_added_but_not_read_changes_no_frontier():
    assert frontier((3, 1), grows=True) == frontier((3, 1, 0), grows=True)
    with pytest.raises(FatalError):
        remap_diff(frontier((3, 1), grows=True), frontier((3,), grows=True))
