"""Copies of large tables of PostgreSQL over several connections: ranges, threads, a real server."""

from __future__ import annotations

import re
import threading
from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.waiting import wait_until

from slackwater.adapter.external import postgres_copies
from slackwater.adapter.external.postgres_copies import (
    LEAST_BYTES,
    ParallelCopy,
    TableSize,
    ranges,
)
from slackwater.adapter.external.postgres_replication import Named, PostgresReplication
from slackwater.repr.errors import SlackwaterError
from slackwater.storage.access import PostgresAccess


@given(
    st.integers(0, 10_000_000),
    st.one_of(st.integers(0, 4 * LEAST_BYTES), st.integers(0, 10**13)),
    st.integers(1, 32),
)
def test_each_block_is_in_one_range(blocks, size_bytes, connections):
    found = ranges(TableSize(blocks, size_bytes), connections)
    if found == [None]:
        assert connections == 1 or blocks < 2 or size_bytes < 2 * LEAST_BYTES
        return
    assert 2 <= len(found) <= 8 * connections
    bounds = [[int(each) for each in re.findall(r"'\((\d+),0\)'::tid", text)] for text in found]
    assert bounds[0][0] == 0
    assert len(bounds[-1]) == 1, "what was added meanwhile is in the last"
    assert bounds[-1][0] < blocks
    for (start, end), (following, *_) in pairwise(bounds):
        assert start < end == following


class Reader:
    """Rows of ranges, each with its own number. `fails_at`: there it fails, or waits for ever."""

    def __init__(self, fails_at=None, waits_at=None):
        self.fails_at, self.waits_at = fails_at, waits_at
        self.interrupted = threading.Event()

    def rows(self, within):
        for number in range(3):
            if within == self.fails_at:
                raise ConnectionError("the server is gone")
            if within == self.waits_at:
                self.interrupted.wait()
                raise ConnectionError("interrupted")
            yield pa.table({"row": [f"{within}.{number}"]})

    def interrupt(self):
        self.interrupted.set()


def copying():
    return [each for each in threading.enumerate() if each.name.startswith("copy-")]


def wait_for_threads():
    wait_until(lambda: not copying(), what="all threads that copy have ended")


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(1, 20))
def test_each_range_is_read_once(readers, wanted):
    copy = ParallelCopy([Reader() for _ in range(readers)], [str(n) for n in range(wanted)])
    rows = Counter(row for piece in copy.pieces() for row in piece["row"].to_pylist())
    copy.end()
    assert rows == Counter(f"{n}.{part}" for n in range(wanted) for part in range(3))
    wait_for_threads()


def test_a_reader_that_fails_ends_all():
    readers = [Reader(fails_at="5", waits_at="6") for _ in range(3)]
    copy = ParallelCopy(readers, [str(n) for n in range(10)])
    with pytest.raises(ConnectionError, match=r"the server is gone|interrupted"):
        list(copy.pieces())
    assert all(each.interrupted.is_set() for each in readers)
    wait_for_threads()


def test_a_copy_that_nobody_takes_ends():
    readers = [Reader(waits_at="3") for _ in range(3)]
    copy = ParallelCopy(readers, [str(n) for n in range(100)])
    next(copy.pieces())
    copy.end()
    copy.end()
    wait_for_threads()


@pytest.fixture
def large(upstream, monkeypatch):
    """A table of many ranges, without some rows in the midst of it."""
    monkeypatch.setattr(postgres_copies, "LEAST_BYTES", 256 * 1024)
    monkeypatch.setattr(postgres_copies, "PIECE_BYTES", 128 * 1024)
    upstream.run(
        "CREATE TABLE large (id INT PRIMARY KEY, t TEXT)",
        "ALTER TABLE large ALTER t SET STORAGE EXTERNAL",
        "INSERT INTO large SELECT n, repeat('y', 600) FROM generate_series(1, 12000) n",
        "DELETE FROM large WHERE id BETWEEN 4000 AND 6000",
        "CREATE PUBLICATION p FOR TABLE large",
    )
    return upstream


def server(upstream, connections, user="postgres"):
    access = PostgresAccess(
        "127.0.0.1", upstream.server.port, upstream.database, user, "disable", None
    )
    named = Named("s", "pg", "p", f"copies_{upstream.database}", is_temporary=True)
    return PostgresReplication(access, named, connections=connections)


def ids(pieces):
    return Counter(text for piece in pieces for text in piece["id"].to_pylist())


def test_all_connections_read_one_snapshot(large):
    replication = server(large, 3)
    assert replication.create_slot() is not None
    (now,) = replication.tables().values()
    large.run("DELETE FROM large WHERE id < 100", "INSERT INTO large VALUES (100000, 'new')")
    pieces = replication.copy(now, ["t", "id"])
    found = ids([next(pieces)])
    assert len(copying()) == 3
    large.run("UPDATE large SET id = id + 1000000")
    found += ids(pieces)
    kept = [*range(1, 4000), *range(6001, 12001)]
    assert found == Counter(map(str, kept))
    wait_for_threads()
    assert replication.tables(), "the connection can be used again"
    replication.close()


def test_the_server_estimates_rows_once_it_has_analyzed_a_table(large):
    large.run("CREATE TABLE never (id INT)", "ANALYZE large")
    replication = server(large, 1)
    assert replication.create_slot() is not None
    (now,) = replication.tables().values()
    assert replication.known_rows([now.oid]) == 9999
    oids = replication._rows("SELECT oid FROM pg_class WHERE relname = 'never'", ())
    assert replication.known_rows([now.oid, *(oid for (oid,) in oids)]) is None
    replication.close()


def test_a_connection_that_is_ended_ends_the_copy_which_can_begin_again(large):
    replication = server(large, 4)
    assert replication.create_slot() is not None
    (now,) = replication.tables().values()
    pieces = replication.copy(now, ["id", "t"])
    next(pieces)
    ended = large.rows(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'COPY %'"
        " AND datname = current_database()"
    )
    assert ended[0][0] > 0
    with pytest.raises(SlackwaterError) as caught:
        list(pieces)
    assert caught.value.condition == "SLACKWATER_SOURCE_UNREACHABLE"
    replication.close()
    wait_for_threads()
    replication = server(large, 4)
    assert replication.create_slot() is not None
    pieces = replication.copy(now, ["id"])
    next(pieces)
    # Whoever closes the server ends what is copied.
    replication.close()
    wait_for_threads()


def test_a_server_that_gives_no_more_connections_is_read_over_those_that_there_are(large):
    user = f"narrow_{large.database}"
    large.run(
        f"CREATE ROLE {user} LOGIN REPLICATION CONNECTION LIMIT 3",
        f"GRANT SELECT ON large TO {user}",
    )
    replication = server(large, 8, user)
    assert replication.create_slot() is not None
    (now,) = replication.tables().values()
    pieces = replication.copy(now, ["id"])
    found = ids([next(pieces)])
    assert len(copying()) == 3
    found += ids(pieces)
    assert sum(found.values()) == len(found) == 9999
    replication.close()
