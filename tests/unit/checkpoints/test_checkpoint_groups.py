"""Groups as their users see them, on each store: they coordinate, and survive what fails."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack

import pytest
from tests.support.checkpoints.checkpoints import NEVER_MS, Failing, await_bounds, t
from tests.support.waiting import PATIENCE

from slackwater.checkpoints import (
    ZERO,
    Checkpoints,
    DatabaseStore,
    GoingBackwards,
    MemoryStore,
    Range,
    TableGroup,
    Variable,
    disable_stream,
    limit_lookahead,
    poll_every,
    prune_every,
)
from slackwater.checkpoints.wakeups import Wakeups
from slackwater.persist.leadership import Fenced

FAKE = TableGroup("fake")
NOTHING = Range()


def inc(first, last):
    return Range.including(t(first), t(last))


@pytest.fixture
def start():
    """Starts groups, of which each is closed at the end; gives the group and its bounds."""
    with ExitStack() as ending:

        def started(store, *options, tables=FAKE, known=NOTHING, **more):
            bounds = Variable(known)
            checkpoints = Checkpoints(store, **more)
            options = (poll_every(NEVER_MS), *options)
            return ending.enter_context(checkpoints.start(tables, bounds, *options)), bounds

        yield started


def test_two_groups_of_one_name_coordinate(checkpoint_store, start):
    one, bounds_of_one = start(checkpoint_store)
    other, bounds_of_other = start(checkpoint_store)
    checkpoints = Checkpoints(checkpoint_store)

    def await_both(expected):
        for bounds in (bounds_of_one, bounds_of_other):
            await_bounds(bounds, expected)

    await_both(inc(0, 0))
    for nanos in range(1, 41):
        one.advance("partition", t(nanos))
        one.advance("partition", t(nanos))
    await_both(inc(0, 40))
    assert checkpoints.scan_for_target_schemas() == [("fake",)]
    one.commit(inc(0, 20))
    await_both(inc(20, 40))
    other.commit(inc(1, 40))
    await_both(inc(40, 40))
    assert checkpoints.scan_for_target_schemas() == []
    with pytest.raises(GoingBackwards, match="is going backwards") as caught:
        other.advance("partition", t(1, 1))
    assert (caught.value.group, caught.value.partition) == ("fake", "partition")
    assert (caught.value.proposed, caught.value.newest) == (t(1, 1), t(40))


def test_committed_stays_when_partitions_do_not_receive_the_same_times(checkpoint_store, start):
    group, bounds = start(checkpoint_store)
    group.advance("a", t(10))
    group.advance("b", t(10))
    group.commit(inc(0, 10))
    group.advance("b", t(15))
    group.advance("a", t(20))
    group.commit(inc(10, 15))
    await_bounds(bounds, inc(15, 15))
    group.advance("b", t(30))
    await_bounds(bounds, inc(15, 20))
    # Whoever comes later knows it too, whatever the rows say.
    _, later = start(checkpoint_store)
    await_bounds(later, inc(15, 20))


def test_a_partition_that_is_declared_late_takes_nothing_back(checkpoint_store, start):
    group, bounds = start(checkpoint_store)
    group.ensure(["a"])
    await_bounds(bounds, Range.including(t(1, 1), t(1, 1)))
    group.advance("a", t(110))
    group.commit(inc(0, 110))
    group.advance("a", t(115))
    await_bounds(bounds, inc(110, 115))
    group.ensure(["a", "newcomer"])
    await_bounds(bounds, inc(110, 110))
    group.advance("newcomer", t(112))
    await_bounds(bounds, inc(110, 112))
    _, later = start(checkpoint_store)
    await_bounds(later, inc(110, 112))
    group.advance("newcomer", t(120))
    group.commit(inc(110, 115))
    await_bounds(bounds, inc(115, 115))


def test_names_are_the_same_in_any_case(checkpoint_store, start):
    group, bounds = start(checkpoint_store, tables=TableGroup("My.Group"))
    group.ensure(["Topic@1", "TOPIC@1"])
    group.advance("topic@1", t(5))
    await_bounds(bounds, Range.including(t(1, 1), t(5)))
    _, same = start(checkpoint_store, tables=TableGroup("my.gROUP"))
    await_bounds(same, bounds.get())
    assert Checkpoints(checkpoint_store).scan_for_target_schemas() == [("my", "group")]


def test_a_group_that_is_not_named_like_a_schema_is_an_error_of_the_scan(checkpoint_store):
    for name in ('"a.b"."c""d"', "plain"):
        checkpoint_store.advance(name, "p", t(1))
    scan = Checkpoints(checkpoint_store).scan_for_target_schemas
    assert scan() == [("a.b", 'c"d'), ("plain",)]
    for name in ("a.b.c", "a.", ".a", 'a"b', '"a'):
        checkpoint_store.advance(name, "p", t(1))
        with pytest.raises(ValueError, match="not named like a schema"):
            scan()
        checkpoint_store.commit(name, inc(0, 1))


@pytest.mark.parametrize("name", ["", "x" * 256, "a\0b"])
def test_what_cannot_be_kept_is_refused(name, start):
    store = MemoryStore()
    group, _ = start(store)
    refused = [
        lambda: start(store, tables=TableGroup(name)),
        lambda: group.advance(name, t(1)),
        lambda: group.ensure(["p", name]),
    ]
    for attempt in refused:
        with pytest.raises(ValueError, match="no name of a group or partition"):
            attempt()
    with pytest.raises(ValueError, match="before the epoch"):
        group.advance("p", ZERO.before)
    assert store.state("fake", None).partitions == ()


def test_names_and_times_may_be_as_long_as_is_said(checkpoint_store, start):
    name, last = "\N{GRINNING FACE}" * 255, t(2**63 - 1, 9_999_999_999)
    group, bounds = start(checkpoint_store, tables=TableGroup(name))
    group.advance(name, last)
    group.commit(Range.including(ZERO, last))
    await_bounds(bounds, Range.including(last, last))


def test_a_lookahead_limits_what_is_proposed(checkpoint_store, start):
    for nanos in range(1, 11):
        checkpoint_store.advance("fake", "p", t(nanos))
    group, bounds = start(checkpoint_store, limit_lookahead(2))
    await_bounds(bounds, inc(0, 3))
    for step, expected in ((3, inc(3, 5)), (5, inc(5, 7)), (10, inc(10, 10))):
        group.commit(inc(0, step))
        await_bounds(bounds, expected)


@pytest.mark.parametrize("option", [limit_lookahead, poll_every, prune_every])
def test_an_option_that_would_do_nothing_is_refused(option):
    for number in (0, -1):
        with pytest.raises(ValueError, match=r"must be (greater than zero|at least 1 ms)"):
            option(number)


def test_without_the_stream_a_group_hears_of_others_when_it_looks(checkpoint_store, start):
    quiet, bounds = start(checkpoint_store, disable_stream())
    other, of_other = start(checkpoint_store)
    other.advance("p", t(1))
    await_bounds(of_other, inc(0, 1))
    assert bounds.get() == inc(0, 0)
    quiet.refresh()
    await_bounds(bounds, inc(0, 1))
    other.advance("p", t(2))
    _, polled = start(checkpoint_store, disable_stream(), poll_every(1))
    await_bounds(polled, inc(0, 2))
    other.advance("p", t(3))
    await_bounds(polled, inc(0, 3))


def test_a_store_that_fails_leaves_the_last_good_bounds(checkpoint_store, start):
    store = Failing(checkpoint_store)
    group, bounds = start(store)
    group.advance("p", t(10))
    group.commit(inc(0, 10))
    group.advance("p", t(20))
    await_bounds(bounds, inc(10, 20))
    store.broken = {"state"}
    for failures in (1, 2):
        group.refresh()
        store.await_calls("state failed", failures)
        assert bounds.get() == inc(10, 20)
    group.advance("p", t(25))
    store.await_calls("state failed", 3)
    assert bounds.get() == inc(10, 20)
    assert isinstance(group.failure, ConnectionError)
    store.broken = set()
    group.advance("p", t(30))
    await_bounds(bounds, inc(10, 30))
    assert group.failure is None


def test_a_store_that_is_away_does_not_make_the_start_fail(checkpoint_store, start):
    checkpoint_store.advance("fake", "p", t(10))
    store = Failing(checkpoint_store)
    store.broken = {"state", "prune"}
    group, bounds = start(store, known=inc(3, 4))
    assert bounds.get() == inc(3, 4)
    assert isinstance(group.failure, ConnectionError)
    store.broken = set()
    group.refresh()
    await_bounds(bounds, inc(3, 10))


def test_what_cannot_be_stored_is_not_published(start):
    """Else another reader would see less afterwards."""
    store = Failing(MemoryStore())
    group, bounds = start(store)
    store.broken = {"raise_committed"}
    group.ensure(["a"])
    store.await_calls("raise_committed failed", 1)
    assert bounds.get() == inc(0, 0)
    store.broken = set()
    group.refresh()
    await_bounds(bounds, Range.including(t(1, 1), t(1, 1)))
    assert store.state("fake", None).committed == t(1, 1)


def test_who_writes_is_told_that_the_store_failed(start):
    store = Failing(MemoryStore())
    group, _ = start(store)
    store.broken = {"advance", "commit", "ensure"}
    for write in (
        lambda: group.advance("p", t(1)),
        lambda: group.commit(inc(0, 1)),
        lambda: group.ensure(["p"]),
    ):
        with pytest.raises(ConnectionError):
            write()


def test_groups_prune_on_a_schedule(start):
    now = Variable(0.0)
    store = Failing(MemoryStore())
    group, bounds = start(store, prune_every(60_000), monotonic=now.get)
    for nanos in range(1, 11):
        group.advance("p", t(nanos))
    group.commit(inc(0, 10))
    await_bounds(bounds, inc(10, 10))
    assert "prune" not in store.calls.get()
    now.set(60.0)
    group.refresh()
    store.await_calls("prune", 1)
    assert store.prune("fake") == 0
    now.set(119.0)
    before = store.calls.get().count("prune")
    group.advance("p", t(11))
    await_bounds(bounds, inc(10, 11))
    store.broken = {"prune"}
    now.set(120.0)
    group.refresh()
    store.await_calls("prune failed", 1)
    assert store.calls.get().count("prune") == before
    group.advance("p", t(12))
    await_bounds(bounds, inc(10, 12))


def test_a_closed_group_follows_no_more_and_closes_again(checkpoint_store, start):
    group, bounds = start(checkpoint_store)
    group.close()
    group.advance("p", t(1))
    group.close()
    assert bounds.get() == inc(0, 0)
    _, later = start(checkpoint_store)
    await_bounds(later, inc(0, 1))


def test_a_call_during_a_round_is_another_round():
    wakeups = Wakeups()
    wakeups.call()
    wakeups.call()
    assert wakeups.wait(PATIENCE)
    # The round runs now.
    wakeups.call()
    assert wakeups.wait(PATIENCE)
    # Nobody called: the time is over at once.
    assert wakeups.wait(0)
    wakeups.close()
    assert not wakeups.wait(PATIENCE)


def test_a_variable_tells_of_what_differs():
    variable = Variable(1)
    assert variable.update(lambda value: value + 1) == 2
    assert variable.wait_for(lambda value: value == 2, 0) == 2
    with pytest.raises(TimeoutError, match="still 2"):
        variable.wait_for(lambda value: value == 3, 0)


def test_a_leader_keeps_checkpoints_in_its_fenced_transactions(env, start):
    former = env.lead()
    group, bounds = start(DatabaseStore(former.transactions))
    group.advance("p", t(10))
    group.commit(inc(0, 10))
    await_bounds(bounds, inc(10, 10))
    leader = env.lead(former.transactions.epoch)
    for write in (
        lambda: group.advance("p", t(20)),
        lambda: group.commit(inc(10, 20)),
        lambda: group.ensure(["q"]),
    ):
        with pytest.raises(Fenced):
            write()
    successor, seen = start(DatabaseStore(leader.transactions))
    await_bounds(seen, inc(10, 10))
    successor.advance("p", t(20))
    await_bounds(seen, inc(10, 20))


_BARE = """
import sys
from slackwater.checkpoints import *
print([name for name in ("pyspark", "py4j", "alembic", "psycopg") if name in sys.modules])
"""


def test_the_package_needs_no_spark():
    done = subprocess.run([sys.executable, "-c", _BARE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
