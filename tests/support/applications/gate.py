"""A statement of a client that stops half-way, until the test lets it go on."""

from __future__ import annotations

import os

import pytest

BLOCK = """
def block(k):
    open({at!r}, "w").close()
    open({gate!r}).close()
    return k

spark.udf.register("block", block, "bigint")
"""


class Gate:
    """A FIFO: who opens it for reading waits until it is open."""

    def __init__(self, path):
        os.mkfifo(path)
        self.path = path
        self._writer = None

    def block(self, at):
        """Python text for a client: its function `block` makes the file `at`, waits, and is k."""
        return BLOCK.format(at=str(at), gate=str(self.path))

    def open(self):
        # With O_RDWR it is there at once; as long as it is, nobody waits.
        if self._writer is None:
            self._writer = os.open(self.path, os.O_RDWR)

    def close(self):
        self.open()
        os.close(self._writer)


@pytest.fixture
def gate(tmp_path):
    made = Gate(tmp_path / "gate")
    yield made
    made.close()
