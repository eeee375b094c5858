"""Parts of outputs as bytes, in which a replica sends what it has computed.

The rows of a small part are in the bytes; those of a large one are in a file of the shard's folder,
which the bytes name. For all parts::

    parts_of(bytes_of(parts)) = parts
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

from cattrs import Converter

from slackwater.persist.parts import FileBody, InlineBody, NewPart

_LENGTH = struct.Struct("<Q")

_converter = Converter(forbid_extra_keys=True)


def bytes_of(parts: Sequence[NewPart]) -> bytes:
    """The parts as bytes; none if there are no parts."""
    if not parts:
        return b""
    streams = [part.body.ipc for part in parts if isinstance(part.body, InlineBody)]
    head = json.dumps([_described(part) for part in parts], separators=(",", ":")).encode()
    return b"".join([_LENGTH.pack(len(head)), head, *streams])


def parts_of(raw: bytes) -> tuple[NewPart, ...]:
    """The parts in the bytes."""
    if not raw:
        return ()
    (length,) = _LENGTH.unpack_from(raw)
    begin = _LENGTH.size + length
    parts = []
    for each in json.loads(raw[_LENGTH.size : begin]):
        size = each.pop("inline", None)
        if size is None:
            body: InlineBody | FileBody = _converter.structure(each.pop("file"), FileBody)
        else:
            body, begin = InlineBody(raw[begin : begin + size]), begin + size
        parts.append(NewPart(body, **each))
    return tuple(parts)


def _described(part: NewPart) -> dict[str, Any]:
    described: dict[str, Any] = {
        "rows": part.rows,
        "min_time": part.min_time,
        "max_time": part.max_time,
        "has_retractions": part.has_retractions,
    }
    match part.body:
        case InlineBody(ipc):
            return {**described, "inline": len(ipc)}
        case FileBody():
            return {**described, "file": _converter.unstructure(part.body)}
