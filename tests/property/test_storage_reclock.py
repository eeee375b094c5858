"""Reclocking against its definition, over random histories of partitioned sources."""

from dataclasses import dataclass

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.property.histories import histories

from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier
from slackwater.storage.reclock import BeyondUpper, BindingUpdate, Remap, Uninitialized, remap_diff
from slackwater.storage.source_time import Position, SourceFrontier


@dataclass(frozen=True)
class History:
    """A remap as it was minted: `steps` are (time, offset of each partition), both rising."""

    partitions: int
    steps: tuple
    remap: Remap

    def messages(self):
        """Every message that was bound, with its time by the definition."""
        found = {}
        for time, offsets in self.steps:
            for partition, offset in enumerate(offsets):
                for number in range(offset):
                    found.setdefault(Position(partition, number), time)
        return found


def frontier(offsets):
    return SourceFrontier.of(Position(p, offset) for p, offset in enumerate(offsets))


@st.composite
def minted(draw, least=1):
    partitions = draw(st.integers(1, 3))
    minimum = SourceFrontier.minimum(partitions)
    remap = Remap.empty(minimum, Frontier(0), Frontier(0))
    offsets, time, steps = (0,) * partitions, 0, []
    for _ in range(draw(st.integers(least, 8))):
        more = draw(st.tuples(*[st.integers(0, 4)] * partitions))
        offsets = tuple(a + b for a, b in zip(offsets, more, strict=True))
        time += draw(st.integers(0, 5))
        minted = remap.mint(frontier(offsets), time)
        if minted is not None:
            remap = remap.appended(minted)
            steps.append((time, offsets))
            time += 1
    return History(partitions, tuple(steps), remap)


times = st.integers(0, 60).map(Frontier)


@histories()
@given(minted())
def test_i49_the_remap_is_a_rising_antichain_with_multiplicity_one(history):
    remap = history.remap
    assert [b.time for b in remap.bindings] == [time for time, _ in history.steps]
    for time, offsets in history.steps:
        held = {}
        for update in remap.updates():
            if update.time <= time:
                held[update.position] = held.get(update.position, 0) + update.diff
        held = {position: count for position, count in held.items() if count}
        assert held == {Position(p, offset): 1 for p, offset in enumerate(offsets)}
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
    updates = list(history.remap.updates())
    random.shuffle(updates)
    minimum = SourceFrontier.minimum(history.partitions)
    again = Remap.of_updates(updates, minimum, Frontier(0), history.remap.upper)
    assert again == history.remap
    for message, time in history.messages().items():
        assert history.remap.reclock(message) == time
        # A process that has seen less of the remap either agrees or does not answer.
        seen = [u for u in updates if u.time < time]
        earlier = Remap.of_updates(seen, minimum, Frontier(0), Frontier(time))
        with pytest.raises((BeyondUpper, Uninitialized)):
            earlier.reclock(message)
        seen = [u for u in updates if u.time <= time]
        enough = Remap.of_updates(seen, minimum, Frontier(0), Frontier(time + 1))
        assert enough.reclock(message) == time


@histories()
@given(minted(), times, st.integers(0, 20))
def test_i51_resuming_brings_exactly_the_missing_updates(history, resume, compaction):
    """The source is read again from `source_upper_at_frontier`, also on a compacted remap."""
    assume(resume <= history.remap.upper)
    # I52: the remap is never compacted up to the upper of an export.
    assume(compaction < resume.value or resume.value == 0)
    remap = history.remap.compacted(Frontier(min(compaction, max(0, resume.value - 1))))
    messages = history.messages()
    durable = {message for message, time in messages.items() if time < resume.value}
    start = remap.source_upper_at_frontier(resume)
    read = [message for message in messages if start.allows(message)]
    emitted = {m for m in read if remap.reclock(m) >= resume.value}
    assert durable | emitted == set(messages)
    assert durable & emitted == set()
    if resume.value > remap.since.value:
        # Nothing that is durable is even read again.
        assert set(read) == emitted


@histories()
@given(minted(), times, times)
def test_i53_reclocking_and_compacting_commute(history, first, second):
    compacted = history.remap.compacted(first).compacted(second)
    since = first.join(second)
    assert compacted == history.remap.compacted(since)
    for message, time in history.messages().items():
        assert compacted.reclock(message) == max(time, since.value)
    minimum = SourceFrontier.minimum(history.partitions)
    stored = Remap.of_updates(history.remap.updates(), minimum, since, history.remap.upper)
    assert stored == compacted


@histories()
@given(minted(), st.data())
def test_what_is_behind_a_frontier_is_reclocked_behind_its_time(history, data):
    remap = history.remap
    offsets = data.draw(st.tuples(*[st.integers(0, 12)] * history.partitions))
    reached = remap.reclock_frontier(frontier(offsets))
    behind = [t for m, t in history.messages().items() if frontier(offsets).allows(m)]
    assert all(time >= reached.value for time in behind)
    if remap.source_upper.not_after(frontier(offsets)):
        assert reached == remap.upper
    elif behind:
        assert reached.value <= min(behind)
    assert remap.reclock_frontier(SourceFrontier(())) == remap.upper


@histories()
@given(minted(), times)
def test_the_frontier_in_the_source_follows_the_frontier_in_time(history, asked):
    remap = history.remap
    if asked > remap.upper:
        with pytest.raises(BeyondUpper):
            remap.source_upper_at_frontier(asked)
        return
    passed = [offsets for time, offsets in history.steps if time < asked.value]
    expected = frontier(passed[-1]) if passed else SourceFrontier.minimum(history.partitions)
    assert remap.source_upper_at_frontier(asked) == expected
    assert remap.source_upper_at_frontier(remap.upper) == remap.source_upper
    assert remap.source_upper_at_frontier(EMPTY_FRONTIER).is_empty


@histories()
@given(minted())
def test_minting_again_after_an_unknown_outcome_adds_nothing(history):
    remap = history.remap
    assert remap.mint(remap.source_upper, remap.upper.value) is None
    older = frontier(history.steps[0][1])
    assert remap.mint(older, remap.upper.value) is None
    with pytest.raises(ValueError, match="before the upper"):
        remap.mint(remap.source_upper, remap.upper.value - 1)


def test_before_the_first_binding_nothing_is_known():
    remap = Remap.empty(SourceFrontier.minimum(2), Frontier(0), Frontier(7))
    with pytest.raises(Uninitialized):
        remap.reclock(Position(0, 0))
    with pytest.raises(Uninitialized):
        remap.source_upper_at_frontier(Frontier(7))
    with pytest.raises(Uninitialized):
        remap.reclock_frontier(SourceFrontier.minimum(2))
    minted = remap.mint(SourceFrontier.minimum(2), 7)
    bound = remap.appended(minted)
    assert bound.source_upper == SourceFrontier.minimum(2)
    with pytest.raises(BeyondUpper):
        bound.reclock(Position(1, 0))
    with pytest.raises(ValueError, match="does not continue"):
        bound.appended(minted)


def test_a_source_that_has_ended_is_bound_to_the_empty_frontier():
    remap = Remap.empty(SourceFrontier.minimum(), Frontier(0), Frontier(0))
    remap = remap.appended(remap.mint(SourceFrontier.at(4), 3))
    remap = remap.appended(remap.mint(SourceFrontier(()), 8))
    assert remap.source_upper.is_empty
    assert remap.reclock(Position(0, 900)) == 8
    assert remap.mint(SourceFrontier(()), 10) is None
    with pytest.raises(TypeError):
        bool(remap.source_upper)
    with pytest.raises(FatalError):
        remap_diff(SourceFrontier.at(5), SourceFrontier.at(4))
