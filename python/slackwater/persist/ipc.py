"""Arrow IPC streams as bytes: written, read, and joined.

A stream is a message with the schema, messages with batches, and an end mark. Streams of one
schema begin with the same bytes, so many are made one without decoding a row.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pyarrow as pa

_CONTINUATION = b"\xff\xff\xff\xff"
_END = _CONTINUATION + b"\x00\x00\x00\x00"
_FRAME_BYTES = 8


def to_stream(table: pa.Table) -> bytes:
    """The table as a stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def from_stream(stream: bytes | memoryview) -> pa.Table:
    """The table that a stream has, over the memory of the stream."""
    with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
        return reader.read_all()


def joined(streams: Sequence[bytes]) -> list[bytes]:
    """The batches of all streams, in order, in as few streams as their schemas allow.

    The streams have no dictionaries, as those of inline parts.
    """
    result: list[list[bytes]] = []
    schema = b""
    for stream in streams:
        found = _schema_message(stream)
        if not result or found is None or found != schema:
            result.append([stream])
            schema = found or b""
        else:
            result[-1].append(stream)
    return [_one(group) for group in result]


def _one(streams: Sequence[bytes]) -> bytes:
    if len(streams) == 1:
        return streams[0]
    start = len(_schema_message(streams[0]) or b"")
    batches = (stream[start : -len(_END)] for stream in streams[1:])
    return b"".join([streams[0][: -len(_END)], *batches, _END])


def _schema_message(stream: bytes) -> bytes | None:
    """The first message; None for a stream in another framing, which stays as it is."""
    if not stream.startswith(_CONTINUATION) or not stream.endswith(_END):
        return None
    (length,) = struct.unpack_from("<i", stream, len(_CONTINUATION))
    return stream[: _FRAME_BYTES + length]
