"""Stores of checkpoints of each kind, for tests."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, select
from tests.support.waiting import PATIENCE

from slackwater.checkpoints import MemoryStore, Variable, open_store
from slackwater.checkpoints.bounds import bounds
from slackwater.persist.tables import checkpoint_groups
from slackwater.repr.hlc import Range, Time

NEVER_MS = 3_600_000


def t(nanos, logical=0):
    return Time(nanos, logical)


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def checkpoint_store(request, tmp_path):
    """An empty store of each kind."""
    if request.param == "memory":
        store = MemoryStore()
        yield store
        validate(store, store._groups)
        return
    url = f"sqlite:///{tmp_path}/checkpoints.sqlite"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").new_database()
    with open_store(url) as opened:
        yield opened
        validate(opened, names_in(url))


def names_in(url):
    """The names of all groups."""
    engine = create_engine(url)
    with engine.connect() as conn:
        found = list(conn.execute(select(checkpoint_groups.c.group_name)).scalars())
    engine.dispose()
    return found


def validate(store, groups):
    """Raises FatalError when the state of a group contradicts itself, with or without a limit."""
    for group in groups:
        for lookahead in (None, 1):
            store.state(group, lookahead).validate()


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


def await_bounds(bounds, expected):
    assert bounds.wait_for(lambda found: found == expected, PATIENCE) == expected


class Failing:
    """A store of which the methods that `broken` names fail; `calls` says what was called, and how.

    What the store itself raises is passed on.
    """

    def __init__(self, store):
        self._store = store
        self.broken = set()
        self.calls = Variable(())

    def __getattr__(self, name):
        def called(*arguments):
            try:
                if name in self.broken:
                    raise ConnectionError("the store is away")
                result = getattr(self._store, name)(*arguments)
            except Exception:
                self.calls.update(lambda before: (*before, f"{name} failed"))
                raise
            self.calls.update(lambda before: (*before, name))
            return result

        return called

    def await_calls(self, name, count):
        self.calls.wait_for(lambda calls: calls.count(name) >= count, PATIENCE)
