"""The lock of a statement that reads and then writes lasts as long as its application lives."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.adapter.coordination import Place
from tests.support.waiting import PATIENCE, wait_until

from slackwater.repr.errors import SlackwaterError

SHORT_MS = 400
SAFE_MS = 3000
"""No thread of a loaded machine waits for so long: who says that it lives is heard in time."""


@pytest.fixture
def lease_ms():
    return SAFE_MS


@pytest.fixture
def place(env, lease_ms):
    made = Place(env, lease_ms=lease_ms)
    made.table("t", k="long")
    made.sql("CREATE SOURCE s FROM LOAD GENERATOR COUNTER (TICK INTERVAL '20ms')")
    yield made
    made.close()


def bind_to_write(place, *names):
    """What a statement gets that reads the collections and then writes t."""
    relations = [{"id": place.item(name).id} for name in names]
    return place.coordinator.calls()["/v1/bind"](
        {"session": "app/1", "relations": relations, "write_target": place.item("t").id}
    )


def counted(place):
    return place.item("s").shard_id and len(place.rows("s"))


@pytest.mark.parametrize("lease_ms", [SHORT_MS])
def test_a_client_that_hangs_loses_its_lock_after_a_lease(place, lease_ms):
    wait_until(lambda: counted(place) > 2, what="the source runs")
    bound = bind_to_write(place, "t", "s")
    assert bound["lease_ms"] == lease_ms
    before = counted(place)
    place.write("t", {"k": 1}, session="app/2")
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
    kept = Renewals(place, bound)
    before = counted(place)
    wait_until(lambda: counted(place) > before + 2, what="the source goes on")
    kept.end()
    place.write("t", {"k": 1}, hold=bound["hold"])


def test_a_source_that_the_statement_reads_goes_on(place):
    """The statement reads it at one time; the tables that it reads stay as they are."""
    wait_until(lambda: counted(place) > 2, what="the source runs")
    bound = bind_to_write(place, "t", "s")
    kept = Renewals(place, bound)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(place.write, "t", {"k": 0}, session="app/2")
        read = place.rows("s", bound["timestamp"])
        try:
            wait_until(lambda: counted(place) > len(read) + 2, what="the source goes on")
            assert place.rows("s", bound["timestamp"]) == read
            assert not other.done()
        finally:
            kept.end()
        mine = place.write("t", {"k": len(read)}, hold=bound["hold"])
        assert other.result(PATIENCE) > mine
    assert place.rows("t", mine) == [{"k": len(read)}]


def test_a_client_that_lives_keeps_its_lock(place):
    bound = bind_to_write(place, "t")
    kept = Renewals(place, bound)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(place.write, "t", {"k": 1}, session="app/2")
        wait_until(lambda: kept.leases > 2, what="two leases")
        assert not other.done()
        kept.end()
        mine = place.write("t", {"k": 2}, hold=bound["hold"])
        assert other.result(PATIENCE) > mine


class Renewals:
    """An application that says again and again that it has the lock."""

    def __init__(self, place, bound):
        self._every_s = bound["lease_ms"] / 10_000
        self._count = 0
        self._place, self._hold = place, bound["hold"]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def leases(self):
        """How many leases have passed."""
        return self._count / 10

    def end(self):
        self._over.set()
        self._thread.join()

    def _run(self):
        while not self._over.wait(self._every_s):
            self._place.coordinator.calls()["/v1/renew"]({"holds": [self._hold]})
            self._count += 1
