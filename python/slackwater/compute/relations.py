"""Parts as the relation of the protocol: what Spark must read, and how."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from slackwater.persist import blobs, reading
from slackwater.persist.ipc import joined
from slackwater.persist.parts import FileBody, InlineBody, NewPart, Part
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, RelationDesc


def relation_json(
    parts: Iterable[Part | NewPart],
    desc: RelationDesc,
    *,
    as_of: Timestamp | None = None,
    upper: Timestamp | None = None,
    advance_to: Timestamp | None = None,
) -> dict[str, Any]:
    """The parts in the form of a relation of the protocol, section 2.

    `as_of`: for reading the contents then. `upper`: for reading updates with ``__time < upper``;
    times below `advance_to` are raised to it.
    """
    chosen = tuple(parts)
    files: list[dict[str, Any]] = []
    inline: list[bytes] = []
    for part in chosen:
        match part.body:
            case FileBody():
                files.append(file_json(part, part.body))
            case InlineBody(ipc):
                inline.append(ipc)
    return {
        "files": files,
        "inline": [inline_text(stream, desc) for stream in joined(inline)],
        "retractions": any(part.has_retractions for part in chosen),
        "time_filter": as_of is not None and any(part.max_time > as_of for part in chosen),
        "lower": None,
        "upper": upper,
        "advance_to": advance_to,
    }


def file_json(part: Part | NewPart, body: FileBody) -> dict[str, Any]:
    """A file of the protocol, section 2."""
    return {
        "uri": body.uri,
        "size_bytes": body.size_bytes,
        "modified_ms": body.modified_ms,
        "rows": part.rows,
        "time": None if body.uniform is None else body.uniform.time,
        "diff": None if body.uniform is None else body.uniform.diff,
        "max_time": part.max_time,
        "retractions": part.has_retractions,
    }


SMALL_IPC_BYTES = 4096
"""Up to this size a stream's text is kept for the next binds, which ask for the same parts."""


def inline_text(ipc: bytes, desc: RelationDesc, fields: frozenset[str] | None = None) -> str:
    """A stream of updates with the columns of `desc`, as text of the protocol.

    Columns that are not among `fields` may be left out: to bring them takes longer than anything
    else that a tick does over some thousand rows. A small stream is the same text for everybody.
    """
    if len(ipc) <= SMALL_IPC_BYTES:
        return _small_text(ipc, desc)
    return _text(ipc, desc if fields is None else desc.only(fields))


def _text(ipc: bytes, desc: RelationDesc) -> str:
    return base64.b64encode(_with_columns(ipc, desc)).decode()


_small_text = lru_cache(maxsize=4096)(_text)


def _with_columns(ipc: bytes, desc: RelationDesc) -> bytes:
    """The stream with the columns of `desc`: it may be older than a column."""
    with pa.ipc.open_stream(ipc) as stream:
        if stream.schema.names == [*desc.stored_names, TIME_COLUMN, DIFF_COLUMN]:
            return ipc
        updates = stream.read_all()
    body = blobs.inline_part(reading.conformed(updates, desc)).body
    assert isinstance(body, InlineBody)
    return body.ipc
