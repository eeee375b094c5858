"""The lock of a statement that reads and then writes lasts as long as its application lives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import Place
from tests.support.waiting import PATIENCE, wait_until

from slackwater.adapter.reading.reads import LockLease
from slackwater.repr.errors import SlackwaterError

LEASE_MS = 400
"""By the test's clock, which passes when the test says so; looks are by that of the machine."""


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self):
        self._now_s = 0.0
        self.read = 0

    def __call__(self):
        self.read += 1
        return self._now_s

    def passes(self, ms):
        """Returns when the coordinator has looked after it."""
        self._now_s += ms / 1000
        # The one that is under way may have read the clock before.
        enough = self.read + 2
        wait_until(lambda: self.read >= enough, every_s=0.01, what="the coordinator looks")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def place(env, clock):
    made = Place(env, lease=LockLease(LEASE_MS, clock))
    made.table("t", k="long")
    made.sql("CREATE SOURCE s FROM LOAD GENERATOR COUNTER (TICK INTERVAL '20ms')")
    yield made
    made.close()


def bind_to_write(place, *names):
    """What a statement gets that reads the collections and then writes t."""
    relations = [{"id": place.item(name).id} for name in names]
    return calls_of(place.coordinator)["/v1/bind"](
        {"session": "app/1", "relations": relations, "write_targets": [place.item("t").id]}
    )


def counted(place):
    return place.item("s").shard_id and len(place.rows("s"))


def renew(place, bound):
    """The application says that it has the lock."""
    calls_of(place.coordinator)["/v1/renew"]({"holds": [bound["hold"]]})


def test_a_client_that_hangs_loses_its_lock_after_a_lease(place, clock):
    wait_until(lambda: counted(place) > 2, what="the source runs")
    bound = bind_to_write(place, "t", "s")
    assert bound["lease_ms"] == LEASE_MS
    before = counted(place)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(place.write, "t", {"k": 1}, session="app/2")
        clock.passes(LEASE_MS - 1)
        assert not other.done()
        clock.passes(2)
        other.result(PATIENCE)
    wait_until(lambda: counted(place) > before, what="the source goes on")
    with pytest.raises(SlackwaterError) as refused:
        place.write("t", {"k": 2}, hold=bound["hold"])
    assert (refused.value.condition, refused.value.sqlstate) == ("SLACKWATER_LOCK_LOST", "40001")
    assert place.read("t") == [{"k": 1}]
    bound = bind_to_write(place, "t")
    place.write("t", {"k": 3}, hold=bound["hold"])
    assert len(place.read("t")) == 2


def test_a_source_that_the_statement_does_not_read_is_not_even_delayed(place):
    bound = bind_to_write(place, "t")
    before = counted(place)
    wait_until(lambda: counted(place) > before + 2, what="the source goes on")
    place.write("t", {"k": 1}, hold=bound["hold"])


def test_a_source_that_the_statement_reads_goes_on(place):
    """The statement reads it at one time; the tables that it reads stay as they are."""
    wait_until(lambda: counted(place) > 2, what="the source runs")
    bound = bind_to_write(place, "t", "s")
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(place.write, "t", {"k": 0}, session="app/2")
        read = place.rows("s", bound["timestamp"])
        wait_until(lambda: counted(place) > len(read) + 2, what="the source goes on")
        assert place.rows("s", bound["timestamp"]) == read
        assert not other.done()
        mine = place.write("t", {"k": len(read)}, hold=bound["hold"])
        assert other.result(PATIENCE) > mine
    assert place.rows("t", mine) == [{"k": len(read)}]


def test_a_client_that_lives_keeps_its_lock(place, clock):
    bound = bind_to_write(place, "t")
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(place.write, "t", {"k": 1}, session="app/2")
        for _ in range(3):
            clock.passes(LEASE_MS - 1)
            renew(place, bound)
        assert not other.done()
        mine = place.write("t", {"k": 2}, hold=bound["hold"])
        assert other.result(PATIENCE) > mine
