"""The pieces that the writers of rows in Avro and in Protobuf share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from slackwater.persist.nested import as_type, with_leaves

Encode = Callable[[Any], bytes]
"""The bytes of a value, which is what Arrow makes of it: numbers for times and dates."""

_SMALL = [bytes([each]) for each in range(128)]


def encoded_rows(encodes: Sequence[Encode], rows: pa.Table) -> list[bytes]:
    """The bytes of each row: those of its columns, one after the other."""
    if not encodes:
        return [b""] * len(rows)
    columns = []
    for encode, column in zip(encodes, rows.columns, strict=True):
        values = column.combine_chunks()
        plain = as_type(values, with_leaves(values.type, _plain)).to_pylist()
        columns.append(list(map(encode, plain)))
    return list(map(b"".join, zip(*columns, strict=True)))


def varint(value: int) -> bytes:
    """A number that is not negative, by seven bits a byte, the lowest first."""
    if value < 128:
        return _SMALL[value]
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type whose Python values are exact, and numbers for times."""
    if pa.types.is_date(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind
