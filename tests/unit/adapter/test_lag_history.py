"""The lags of the past: through takeovers, and where nothing can be stored."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs
from tests.support.adapter.coordination import Place
from tests.support.waiting import wait_until

from slackwater.adapter.history.lags import MINUTE_MS, LagLimits
from slackwater.adapter.system.lag_history import FOLDER, LagHistory
from slackwater.persist.blobs import LocalBlobs

BEGIN_MS = 1_000 * MINUTE_MS


class Leader:
    """A history whose thread does not run, and the clock that it reads."""

    def __init__(self, blobs, epoch=1, now_ms=BEGIN_MS):
        self.now_ms = now_ms
        self.history = LagHistory(blobs, epoch, lambda: self.now_ms, LagLimits(rows=1_000))

    def sees(self, *lags, after_ms=0):
        self.now_ms += after_ms
        self.history._lags = lambda: dict(lags)
        self.history.observe()
        self.history.validate()

    @property
    def told(self):
        return [(each.minute_ms - BEGIN_MS, dict(each.lags_ms)) for each in self.history.minutes()]


def test_a_minute_that_is_over_has_its_worst_lags_also_under_the_next_leader(tmp_path):
    first = Leader(LocalBlobs(tmp_path))
    first.sees(("u1", 5), ("u2", 70))
    first.sees(("u1", 9), after_ms=59_999)
    assert first.told == []
    first.sees(("u1", 1), after_ms=1)
    wanted = [(0, {"u1": 9, "u2": 70})]
    assert first.told == wanted
    second = Leader(LocalBlobs(tmp_path), epoch=2, now_ms=first.now_ms + MINUTE_MS)
    second.sees(("u3", 4))
    assert second.told == wanted, "the minute that ran is lost with its leader"


def test_a_leader_that_ends_stores_the_minute_that_runs(tmp_path):
    first = Leader(LocalBlobs(tmp_path))
    first.sees(("u1", 5))
    first.history.start(lambda: {"u1": 6})
    first.history.stop()
    second = Leader(LocalBlobs(tmp_path), epoch=2)
    second.sees(("u1", 2), after_ms=30_000)
    second.sees(after_ms=MINUTE_MS)
    assert second.told == [(0, {"u1": 6})], "two leaders have seen parts of one minute"


def test_a_store_that_is_away_costs_nothing_once_it_is_back(tmp_path):
    (tmp_path / FOLDER).write_text("no folder")
    leader = Leader(LocalBlobs(tmp_path))
    with capture_logs() as lines:
        for _ in range(3):
            leader.sees(("u1", 5), after_ms=MINUTE_MS)
    assert [each["event"] for each in lines] == ["the history of lags is not stored"]
    assert len(leader.told) == 2
    (tmp_path / FOLDER).unlink()
    leader.sees(("u1", 5), after_ms=MINUTE_MS)
    again = Leader(LocalBlobs(tmp_path), epoch=2, now_ms=leader.now_ms)
    again.sees()
    assert again.told == leader.told


@pytest.fixture
def place(env):
    opened = Place(env)
    yield opened
    opened.close()


def test_a_coordinator_observes_what_it_has(place):
    place.table("t", k="long")
    history = place.coordinator.parts.lag_history
    wait_until(lambda: history._core._minutes, what="the thread has looked")
    lags = place.coordinator.parts.system.lags()
    (table,) = (i for i in place.coordinator.parts.relations.state.items.values() if i.name == "t")
    assert list(lags) == [table.id], "relations of the system have no lag"
    assert lags[table.id] >= 0
    assert place.system("mz_wallclock_global_lag_recent_history") == []
