"""All rows of an index at a time: few as a stream, many as a file, and none of what is ended."""

from __future__ import annotations

from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.waiting import wait_until

from slackwater.compute.engine import WholeIndex
from slackwater.compute.peeked_rows import PeekLimits, PeekStashed, Stash
from slackwater.persist.ipc import from_stream
from slackwater.persist.uris import file_uri, local_path
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN

pytestmark = pytest.mark.spark

KEYS, EACH = 3000, 2
"""The index has so many keys, and so many equal rows of each."""
GREAT = 1 << 40


@pytest.fixture
def index(bench):
    """The program of an index over `b`, and the directory for files."""
    count = KEYS * EACH
    columns = {
        "k": pa.array([i % KEYS for i in range(count)], pa.int32()),
        "w": pa.array([7] * count, pa.int64()),
        TIME_COLUMN: pa.array([1] * count, pa.int64()),
        DIFF_COLUMN: pa.array([1] * count, pa.int64()),
    }
    bench.write(2, {"b": pa.table(columns)})
    flow = bench.index("i", "SELECT *, k AS key FROM b", 1, None)
    bench.worker.add(flow)
    bench.commit(5, {"b": [((0, 7), 3, -1)]})

    def program():
        found = bench.worker.program_in_driver(flow.global_id)
        return found if whole(bench, found, at=4) is not None else None

    wait_until(program, what="the index")
    return program()


def whole(bench, program, at, rows=GREAT, byte_count=GREAT, stash=None):
    if program is None:
        return None
    return bench.engine.take_all(
        WholeIndex(program, Timestamp(at), Timestamp(at + 1), PeekLimits(rows, byte_count), stash)
    )


def files(directory):
    return [path.name for path in directory.rglob("*") if path.is_file()]


def test_few_rows_are_a_stream_and_many_a_file(bench, index, tmp_path):
    directory = tmp_path / "peeks"
    stash = Stash(file_uri(directory), PeekLimits(GREAT, GREAT))
    wanted = sorted([(i % KEYS, 7) for i in range(KEYS * EACH)])
    for at, expected in ((2, wanted), (4, wanted[1:])):
        stream = from_stream(whole(bench, index, at, stash=stash))
        assert sorted(zip(*(stream[name].to_pylist() for name in "kw"), strict=True)) == expected
        assert files(directory) == []
        written = whole(bench, index, at, rows=10, stash=stash)
        assert isinstance(written, PeekStashed)
        path = local_path(written.uri)
        found = pq.read_table(path)
        assert sorted(zip(*(found[name].to_pylist() for name in "kw"), strict=True)) == expected
        assert (written.rows, written.size_bytes) == (len(expected), path.stat().st_size)
        bench.client.files.blobs.delete(written.uri)
        assert files(directory) == []


@pytest.mark.parametrize("most", [(10, GREAT), (GREAT, 100)])
def test_more_than_is_wanted_is_nothing_and_leaves_no_file(bench, index, tmp_path, most):
    assert whole(bench, index, 4, *most) is None
    directory = tmp_path / "peeks"
    narrow = Stash(file_uri(directory), PeekLimits(*(2000 * each for each in most)))
    assert isinstance(whole(bench, index, 4, *most, narrow), PeekStashed)
    written = files(directory)
    narrow = Stash(file_uri(directory), PeekLimits(*(100 * each for each in most)))
    assert whole(bench, index, 4, *most, narrow) is None
    assert files(directory) == written


class Ended:
    """Ends at once what it interrupts."""

    @contextmanager
    def on_cancel_or_deadline(self, action):
        action()
        yield

    def check_deadline(self, doing):
        pass


def test_what_is_ended_leaves_no_file(bench, index, tmp_path):
    directory = tmp_path / "peeks"
    stash = Stash(file_uri(directory), PeekLimits(GREAT, GREAT))
    with bench.engine.ended_by(Ended()), pytest.raises(SlackwaterError) as ended:
        whole(bench, index, 4, rows=10, stash=stash)
    assert ended.value.condition == "SLACKWATER_CANCELED"
    assert files(directory) == []


def test_a_time_that_is_forgotten_and_a_program_that_is_gone_have_no_rows(bench, index):
    assert whole(bench, index, 4) is not None
    assert whole(bench, index, 0) is None
    assert whole(bench, "another", 4) is None
