"""Logs: records that a replica keeps of itself, as the rows that a peek of a log answers with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pyarrow as pa
from cattrs import Converter

from slackwater.persist.ipc import from_stream, to_stream

Record = TypeVar("Record")

_converter = Converter(forbid_extra_keys=True, detailed_validation=False)
# Arrow has made integers of them: nothing is to be checked, and histograms have many.
_converter.register_structure_hook_func(
    lambda kind: kind == tuple[int, ...], lambda numbers, _: tuple(numbers)
)


def rows_of(records: Sequence[object]) -> bytes:
    """The records, which are dataclasses of one kind, as an Arrow stream."""
    return to_stream(pa.Table.from_pylist([_converter.unstructure(each) for each in records]))


def records_of(rows: bytes, kind: type[Record]) -> list[Record]:
    """The records in the rows that `rows_of` made of them."""
    return [_converter.structure(each, kind) for each in from_stream(rows).to_pylist()]
