"""The counts and the bounds of a Parquet file's columns, in the form of Iceberg's manifests.

There are no bounds of floating-point numbers: Iceberg leaves NaN out of them, and in Spark NaN is
greater than any other number, so that readers would leave out files with it. There are none of
what a row has several of, either.

Source: docs/decisions 0077.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from slackwater.storage.iceberg.schema import Leaf

LENGTH = 16
"""So many characters, or bytes, of a text have bounds."""
_SURROGATES = range(0xD800, 0xE000)
_LAST_CHARACTER = 0x10FFFF
_FORMATS = {"int": "<i", "date": "<i", "long": "<q", "timestamp": "<q", "timestamptz": "<q"}
_DECIMAL = re.compile(r"decimal\(.*\)")


@dataclass(slots=True)
class FileStatistics:
    """The statistics of a file, which readers see before they open it, by the ids of its fields."""

    rows: int
    sizes: dict[int, int] = field(default_factory=dict)
    values: dict[int, int] = field(default_factory=dict)
    nulls: dict[int, int] = field(default_factory=dict)
    lower: dict[int, bytes] = field(default_factory=dict)
    upper: dict[int, bytes] = field(default_factory=dict)
    offsets: list[int] = field(default_factory=list)


def statistics_of(metadata: Any, leaves: Sequence[Leaf]) -> FileStatistics:
    """The statistics of a file with that metadata of PyArrow, whose columns are `leaves`."""
    found = FileStatistics(metadata.num_rows)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for group in groups:
        first = group.column(0)
        starts = (first.dictionary_page_offset, first.data_page_offset)
        found.offsets.append(min(start for start in starts if start))
    for position, leaf in enumerate(leaves):
        chunks = [group.column(position) for group in groups]
        found.sizes[leaf.field_id] = sum(each.total_compressed_size for each in chunks)
        if not leaf.is_repeated:
            _describe(found, leaf, chunks)
    return found


def _describe(found: FileStatistics, leaf: Leaf, chunks: Sequence[Any]) -> None:
    number = leaf.field_id
    found.values[number] = sum(each.num_values for each in chunks)
    told = [each.statistics for each in chunks if each.is_stats_set]
    if len(told) < len(chunks) or not all(each.has_null_count for each in told):
        return
    found.nulls[number] = sum(each.null_count for each in told)
    kept = [each for each in told if each.num_values and leaf.type]
    if not kept or not all(each.has_min_max for each in kept):
        return
    least = min(_comparable(leaf.type, each.min_raw) for each in kept)
    greatest = max(_comparable(leaf.type, each.max_raw) for each in kept)
    lower, upper = lower_bound(leaf.type, least), upper_bound(leaf.type, greatest)
    if lower is not None and upper is not None:
        found.lower[number], found.upper[number] = lower, upper


def _comparable(kind: str, raw: Any) -> Any:
    """The value as it is compared: a decimal is a whole number, a text is bytes."""
    if _DECIMAL.fullmatch(kind) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw.encode() if isinstance(raw, str) else raw


def lower_bound(kind: str, value: Any) -> bytes | None:
    """The bytes of a value that is not greater than that one; None: there are none."""
    if kind == "string":
        text = _text(value)
        return None if text is None else text[:LENGTH].encode()
    return bytes(value[:LENGTH]) if kind == "binary" else _exact(kind, value)


def upper_bound(kind: str, value: Any) -> bytes | None:
    """The bytes of a value that is not less than that one; None: there are none."""
    if kind == "string":
        text = _text(value)
        if text is None or len(text) <= LENGTH:
            return None if text is None else text.encode()
        return _next_text(text[:LENGTH])
    if kind == "binary":
        return bytes(value) if len(value) <= LENGTH else _next_bytes(bytes(value[:LENGTH]))
    return _exact(kind, value)


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _exact(kind: str, value: Any) -> bytes | None:
    if kind == "boolean":
        return bytes([bool(value)])
    if kind in _FORMATS:
        return struct.pack(_FORMATS[kind], value)
    if _DECIMAL.fullmatch(kind):
        size = (value if value >= 0 else ~value).bit_length() // 8 + 1
        return int(value).to_bytes(size, "big", signed=True)
    return None


def _next_text(text: str) -> bytes | None:
    """The least text of that length or shorter that is greater than all that begin with it."""
    for position in reversed(range(len(text))):
        code = ord(text[position]) + 1
        if code in _SURROGATES:
            code = _SURROGATES.stop
        if code <= _LAST_CHARACTER:
            return (text[:position] + chr(code)).encode()
    return None


def _next_bytes(value: bytes) -> bytes | None:
    for position in reversed(range(len(value))):
        if value[position] < 255:
            return value[:position] + bytes([value[position] + 1])
    return None
