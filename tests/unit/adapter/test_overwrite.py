"""INSERT OVERWRITE: what it takes back is found out while others go on."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.adapter.coordination import Place
from tests.support.waiting import PATIENCE

from slackwater.persist.blobs import LocalBlobs
from slackwater.persist.parts import FileBody

MANY = 120_000
"""Rows that are too many for an inline part."""


class Gate:
    """Files whose next opening, once `armed`, says that it `arrived` and waits to be `opened`."""

    def __init__(self, folder):
        self._blobs = LocalBlobs(Path(folder))
        self.armed, self.arrived = threading.Event(), threading.Event()
        self.opened = threading.Event()
        self.writers = []

    def __getattr__(self, name):
        return getattr(self._blobs, name)

    def put(self, *arguments):
        self.writers.append(threading.current_thread().name)
        return self._blobs.put(*arguments)

    def open(self, uri):
        if self.armed.is_set():
            self.arrived.set()
            assert self.opened.wait(PATIENCE)
        return self._blobs.open(uri)


@pytest.fixture
def gate(env):
    return Gate(env.location)


@pytest.fixture
def place(env, gate):
    place = Place(env, blobs=gate)
    place.table("t", k="long")
    yield place
    place.close()


def test_others_commit_while_a_large_table_is_read_to_be_replaced(place, gate):
    place.table("u", k="long")
    place.write("t", *({"k": k} for k in range(MANY)), diff=2)
    place.write("t", {"k": 0}, {"k": 0}, {"k": 0})
    assert any(isinstance(p.body, FileBody) for p in place.env.persist.reads.parts(shard(place)))
    gate.armed.set()
    with ThreadPoolExecutor(2) as pool:
        replaced = pool.submit(place.write, "t", {"k": -1}, mode="overwrite")
        assert gate.arrived.wait(PATIENCE)
        try:
            other = pool.submit(place.write, "u", {"k": 7}, session="app/2").result(PATIENCE)
        finally:
            gate.armed.clear()
            gate.opened.set()
        assert replaced.result(PATIENCE) > other
    assert place.rows("t") == [{"k": -1}]
    assert len(place.rows("t", other)) == 2 * MANY + 3
    assert place.rows("u") == [{"k": 7}]
    assert place.env.storage.holds() == ()


def test_rows_in_every_multiplicity_are_taken_back(place):
    """Of a file too, some of which was deleted since."""
    place.write("t", *({"k": k % 50_000} for k in range(MANY)))
    place.write("t", *({"k": k} for k in range(0, 50_000, 2)), diff=-1)
    place.write("t", {"k": 1}, {"k": 1}, diff=-1)
    place.write("t", mode="overwrite")
    assert place.rows("t") == []
    place.write("t", {"k": 5}, mode="overwrite")
    place.write("t", {"k": 6}, mode="overwrite")
    assert place.rows("t") == [{"k": 6}]


def test_what_a_large_block_has_buffered_is_in_a_file_before_it_is_committed(place, gate):
    """So the committing thread has nothing to write, and others do not wait."""
    place.sql("BEGIN")
    for first in range(0, MANY, 40_000):
        place.write("t", *({"k": k} for k in range(first, first + 40_000)), mode="append")
    place.sql("COMMIT")
    assert len(place.rows("t")) == MANY
    assert gate.writers
    assert "group-commit" not in gate.writers


def shard(place):
    return place.item("t").shard_id
