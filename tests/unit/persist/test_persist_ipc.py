"""Streams are joined without being read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from slackwater.persist.ipc import joined

A = pa.schema([pa.field("k", pa.int64()), pa.field("s", pa.list_(pa.string()))])
B = pa.schema([pa.field("k", pa.int32())])


def stream(schema, *batches):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for rows in batches:
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema))
    return sink.getvalue().to_pybytes()


def rows(streams):
    return [row for s in streams for row in pa.ipc.open_stream(s).read_all().to_pylist()]


ONE = [{"k": 1, "s": ["a", None]}]
TWO = [{"k": None, "s": None}, {"k": 3, "s": []}]


@pytest.mark.parametrize(
    ("streams", "count"),
    [
        ([], 0),
        ([stream(A, ONE)], 1),
        ([stream(A, ONE), stream(A, TWO), stream(A, ONE, TWO)], 1),
        ([stream(A, ONE), stream(A), stream(A, TWO)], 1),
        ([stream(A), stream(A, ONE)], 1),
        ([stream(A, ONE), stream(B, [{"k": 7}]), stream(B, [{"k": 8}]), stream(A, TWO)], 3),
    ],
)
def test_joined_streams_have_the_rows_in_order(streams, count):
    found = joined(streams)
    assert len(found) == count
    assert rows(found) == rows(streams)


def test_a_stream_in_another_framing_stays_apart():
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(use_legacy_format=True)
    with pa.ipc.new_stream(sink, A, options=options) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist(ONE, A))
    legacy = sink.getvalue().to_pybytes()
    found = joined([stream(A, ONE), legacy, legacy, stream(A, TWO)])
    assert len(found) == 4
    assert rows(found) == ONE + ONE + ONE + TWO
