"""Worked cases of bounds: what each store gives, what the original gave, and where they differ."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from tests.support.checkpoints.checkpoint_model import FIRST, Row, hardened, history, original
from tests.support.checkpoints.checkpoints import fill, t, window

from slackwater.checkpoints import GoingBackwards
from slackwater.repr.hlc import ZERO, Range, Time

GROUP = "fake"


def inc(first, last):
    first, last = (each if isinstance(each, Time) else t(each) for each in (first, last))
    return Range.including(first, last)


def upto(last, *, applied=0):
    return " ".join(f"{n}{'A' if n <= applied else 'U'}" for n in range(1, last + 1))


@dataclass(frozen=True)
class Case:
    """A group, what its reader knows, and the range; `original` is the other's if that differs."""

    name: str
    partitions: dict[str, str]
    expected: Range
    original: Range | None = None
    known: int = 0
    lookahead: int | None = None
    declared: tuple[str, ...] = field(default=())

    def rows(self):
        declared = {name: [Row(FIRST, True)] for name in self.declared}
        for name, text in self.partitions.items():
            declared[name] = declared.get(name, []) + history(text)
        return declared


CASES = [
    Case("no rows", {}, inc(7, 7), known=7),
    Case("nothing is applied", {"p": upto(100)}, inc(0, 100)),
    Case("a half is applied", {"p": upto(100, applied=50)}, inc(50, 100)),
    Case("all is applied", {"p": upto(100, applied=100)}, inc(100, 100)),
    Case("a lookahead without applied rows", {"p": upto(10)}, inc(0, 5), lookahead=4),
    Case("a lookahead after one", {"p": upto(10, applied=1)}, inc(1, 5), lookahead=4),
    Case("a lookahead after two", {"p": upto(10, applied=2)}, inc(2, 6), lookahead=4),
    Case("the least lookahead", {"p": upto(10, applied=2)}, inc(2, 3), lookahead=1),
    Case("a lookahead beyond the end", {"p": upto(10, applied=8)}, inc(8, 10), lookahead=4),
    Case("a gap ends the window", {"p": "100A 105U 107U 110A"}, inc(100, 107)),
    Case("a smaller gap", {"p": "100A 105A 107U 110A"}, inc(105, 107)),
    Case("a gap that is closed", {"p": "100A 105A 107A 110A"}, inc(110, 110)),
    Case("the least common maximum", {"a": "10A 20U 30U", "b": "10A 20U"}, inc(10, 20)),
    Case("nobody outruns", {"a": "10A 20U 30U", "b": "10A"}, inc(10, 10)),
    Case("who is behind decides", {"a": "10A 20A 30U", "b": "10A 30U"}, inc(10, 30)),
    Case("partitions with other times", {"a": "10A 20U", "b": "15A"}, inc(15, 15)),
    # The original falls back to zero: it does not see 10A of a any more.
    Case(
        "then the other partition moves on",
        {"a": "10A 20U", "b": "15A 30U"},
        inc(15, 20),
        original=inc(0, 20),
        known=15,
    ),
    Case("a partition is declared", {"a": "110A"}, inc(FIRST, FIRST), declared=("b",)),
    Case("and has caught up", {"a": "110A", "b": "110U"}, inc(FIRST, 110), declared=("b",)),
    Case("a reader that knows more", {"a": "110A"}, inc(110, 110), known=110, declared=("b",)),
    # The original falls back to zero again: it does not see where b was declared.
    Case(
        "a partition that was declared comes later",
        {"a": "110A 115U", "b": "112U"},
        inc(110, 112),
        original=inc(0, 112),
        known=110,
        declared=("b",),
    ),
    # The original counts the applied history as work.
    Case(
        "a lookahead with nothing to do",
        {"p": upto(10, applied=10)},
        inc(10, 10),
        original=inc(2, 2),
        lookahead=1,
    ),
    Case(
        "and its next refresh",
        {"p": upto(10, applied=10)},
        inc(10, 10),
        original=inc(3, 3),
        known=2,
        lookahead=1,
    ),
    # The original counts the same row again for each gap, and stalls.
    Case(
        "a lookahead and many gaps",
        {"p": "1A 2U 3U 4A 5U 6U 7A 8U 9U 10A 11U 12U"},
        inc(1, 3),
        original=inc(1, 1),
        lookahead=3,
    ),
    Case("many gaps", {"p": "1A 2U 3U 4A 5U 6U 7A 8U 9U 10A 11U 12U"}, inc(1, 3)),
    # The original finds an empty window, and takes the group to have no rows.
    Case("a gap at the beginning", {"p": "1U 2U 3A 4A 5U 6U"}, inc(0, 2), original=inc(0, 0)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_worked_case(case, checkpoint_store):
    rows = case.rows()
    checkpoint_store.ensure(GROUP, case.declared)
    fill(checkpoint_store, GROUP, {name: history(text) for name, text in case.partitions.items()})
    assert window(checkpoint_store, GROUP, t(case.known), case.lookahead) == case.expected
    assert hardened(rows, t(case.known), case.lookahead) == case.expected
    assert original(rows, t(case.known), case.lookahead) == (case.original or case.expected)


def at(n):
    return t(n, n)


@pytest.mark.parametrize("partitions", [1, 16])
def test_transitions(checkpoint_store, partitions):
    names = [f"part_{number}" for number in range(partitions)]
    committed = [ZERO]

    def advance(*times):
        """All partitions, one after the other; the bounds follow the last."""
        before = window(checkpoint_store, GROUP, ZERO)
        for name in names:
            for time in times:
                checkpoint_store.advance(GROUP, name, at(time))
            if name != names[-1]:
                assert window(checkpoint_store, GROUP, ZERO) == before

    def commit(first, last):
        checkpoint_store.commit(GROUP, Range.including(at(first), at(last)))
        committed.append(checkpoint_store.state(GROUP, None).committed)
        assert committed[-2] <= committed[-1]

    def expect(first, last):
        assert window(checkpoint_store, GROUP, ZERO, 1024) == Range.including(at(first), at(last))

    expect(0, 0)
    advance(0)
    expect(0, 0)
    advance(2)
    expect(0, 2)
    commit(0, 2)
    expect(2, 2)
    advance(5)
    expect(2, 5)
    commit(2, 5)
    expect(5, 5)
    advance(10, 15, 20, 25)
    for done in (10, 15):
        commit(0, done)
        expect(done, 25)
    commit(15, 20)
    commit(20, 25)
    expect(25, 25)
    advance(100, 105, 107, 110)
    commit(25, 100)
    commit(110, 110)
    expect(100, 107)
    commit(105, 105)
    expect(105, 107)
    commit(107, 107)
    expect(110, 110)
    checkpoint_store.ensure(GROUP, names)
    expect(110, 110)
    checkpoint_store.ensure(GROUP, ["another"])
    expect(1, 1)
    checkpoint_store.advance(GROUP, "another", at(110))
    expect(1, 110)
    # Whoever reads the group is not told so: what was committed stays.
    assert committed[-1] == at(110)
    commit(0, 110)
    expect(110, 110)


def test_committing_window_by_window_reaches_the_end(checkpoint_store):
    fill(checkpoint_store, GROUP, {"p": history(upto(10, applied=2))})
    rounds, found = 0, window(checkpoint_store, GROUP, ZERO, 1)
    while found.min < t(10):
        checkpoint_store.commit(GROUP, found)
        found = window(checkpoint_store, GROUP, found.max_inclusive, 1)
        rounds += 1
    assert (rounds, found) == (8, inc(10, 10))


def test_a_commit_is_half_open_and_says_so_of_all_partitions(checkpoint_store):
    fill(checkpoint_store, GROUP, {"a": history("10U 20U 30U"), "b": history("20U 30U")})
    checkpoint_store.commit(GROUP, Range(t(10), t(20)))
    assert window(checkpoint_store, GROUP, ZERO) == inc(0, 30)
    checkpoint_store.commit(GROUP, Range(t(20), t(20, 1)))
    assert window(checkpoint_store, GROUP, ZERO) == inc(20, 30)
    assert checkpoint_store.state(GROUP, None).committed == t(20)
    checkpoint_store.commit(GROUP, Range(t(20), t(20, 1)))
    assert window(checkpoint_store, GROUP, ZERO) == inc(20, 30)


def test_a_partition_never_goes_back(checkpoint_store):
    for time in (5, 10, 10):
        checkpoint_store.advance(GROUP, "p", t(time))
    for earlier in (t(5), t(9, 9)):
        with pytest.raises(GoingBackwards, match="of partition p of group fake is going backwards"):
            checkpoint_store.advance(GROUP, "p", earlier)
    checkpoint_store.commit(GROUP, inc(0, 10))
    checkpoint_store.advance(GROUP, "p", t(10))
    assert window(checkpoint_store, GROUP, ZERO) == inc(10, 10)
    assert checkpoint_store.pending() == []
    checkpoint_store.advance(GROUP, "other", t(3))
    assert checkpoint_store.pending() == [GROUP]


def test_times_keep_their_order_whatever_their_length(checkpoint_store):
    times = [t(9), t(9, 2**31), t(10), t(10, 9_999_999_999), t(2**63 - 1, 9_999_999_999)]
    for time in times:
        checkpoint_store.advance(GROUP, "p", time)
    for time, after in itertools.pairwise(times):
        checkpoint_store.commit(GROUP, Range(ZERO, after))
        assert checkpoint_store.state(GROUP, None).committed == time
    checkpoint_store.commit(GROUP, Range.including(ZERO, times[-1]))
    assert window(checkpoint_store, GROUP, ZERO) == Range.including(times[-1], times[-1])


def test_what_nothing_depends_on_is_pruned(checkpoint_store):
    fill(checkpoint_store, GROUP, {"a": history("1A 2A 3A 4U 5A"), "b": history("2A 3A 5A")})
    fill(checkpoint_store, "other", {"a": history("1A 2A")})
    before = checkpoint_store.state(GROUP, None)
    assert checkpoint_store.prune(GROUP) == 4
    assert checkpoint_store.state(GROUP, None) == before
    assert checkpoint_store.prune(GROUP) == 0
    checkpoint_store.commit(GROUP, inc(4, 4))
    assert checkpoint_store.prune(GROUP) == 2
    assert window(checkpoint_store, GROUP, ZERO) == inc(5, 5)
    assert checkpoint_store.prune("other") == 1
    assert checkpoint_store.prune("of no rows") == 0
    with pytest.raises(GoingBackwards):
        checkpoint_store.advance("other", "a", t(1))


def test_committed_only_grows(checkpoint_store):
    for time in (t(5), t(3)):
        checkpoint_store.raise_committed(GROUP, time)
        assert checkpoint_store.state(GROUP, None).committed == t(5)
    checkpoint_store.advance(GROUP, "p", t(4))
    checkpoint_store.commit(GROUP, inc(0, 4))
    assert checkpoint_store.state(GROUP, None).committed == t(5)
