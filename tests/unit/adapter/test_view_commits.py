"""Commits of views: what one round of ticks computes is one transaction."""

from __future__ import annotations

import pytest
from tests.support.adapter.calm import CalmPlace

from slackwater.adapter.controllers.outputs import StoredOutputs
from slackwater.compute import worker

BEGIN = 1_780_000_000_000
HOUR_S = 3600.0
VIEWS = ("v0", "v1", "v2")


@pytest.fixture
def appended(monkeypatch):
    """The views of each commit that gave them rows, and how often one was refused."""
    found, append = [], StoredOutputs.append

    def noted(outputs, commits):
        append(outputs, commits)
        found.append({each.id for each in commits if each.rows})

    monkeypatch.setattr(StoredOutputs, "append", noted)
    return found


@pytest.fixture
def place(env, appended):
    made = CalmPlace(env, BEGIN)
    made.table("t", k="integer")
    for number, name in enumerate(VIEWS):
        made.sql(f"CREATE MATERIALIZED VIEW {name} AS SELECT k + {number} AS k FROM t")
    yield made
    made.close()


def rows(place):
    return [sorted(row["k"] for row in place.read(name)) for name in VIEWS]


def test_what_a_round_of_ticks_computes_is_one_commit(place, appended, monkeypatch):
    # On a busy machine each tick takes longer than what is computed may wait.
    monkeypatch.setattr(worker, "LONGEST_WAIT_S", HOUR_S)
    ids = {place.item(name).id for name in VIEWS}
    written = []

    def is_one_commit():
        # The first ticks load what programs look up, in threads of their own.
        appended.clear()
        place.passes(10)
        written.append(len(written))
        place.write("t", {"k": written[-1]})
        assert rows(place) == [[key + number for key in written] for number in range(len(VIEWS))]
        return ids in appended

    place.wait(is_one_commit)


def test_two_replicas_commit_each_update_once(place):
    place.sql("ALTER CLUSTER quickstart SET (REPLICATION FACTOR = 2)")
    for key in range(20):
        place.passes(10)
        place.write("t", {"k": key})
    assert rows(place) == [list(range(number, number + 20)) for number in range(len(VIEWS))]
