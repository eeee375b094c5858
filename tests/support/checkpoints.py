"""Stores of checkpoints of each kind, for tests."""

from __future__ import annotations

import pytest

from slackwater.repr.hlc import Range, Time
from slackwater.storage.checkpoint import MemoryStore, open_store
from slackwater.storage.checkpoint.bounds import bounds


def t(nanos, logical=0):
    return Time(nanos, logical)


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def checkpoint_store(request, tmp_path):
    """An empty store of each kind."""
    if request.param == "memory":
        yield MemoryStore()
        return
    url = f"sqlite:///{tmp_path}/checkpoints.sqlite"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").new_database()
    with open_store(url) as opened:
        yield opened


def window(store, group, known, lookahead=None):
    """The bounds by what the store has, whatever it has kept as committed."""
    return bounds(store.state(group, lookahead).partitions, known)


def fill(store, group, partitions):
    """Gives the store a group with the rows of each partition.

    What is applied in one partition must not be there unapplied in one before.
    """
    for name, rows in partitions.items():
        for row in rows:
            store.advance(group, name, row.time)
        for row in rows:
            if row.applied:
                store.commit(group, Range.including(row.time, row.time))
