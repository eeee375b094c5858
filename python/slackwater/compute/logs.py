"""Logs: records that a replica keeps of itself, as the rows that a peek of a log answers with.

Both ways go by columns: a scrape of metrics has a record, with two histograms, of each dataflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from itertools import accumulate, chain, pairwise
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import pyarrow as pa

from slackwater.persist.ipc import from_stream, to_stream

Record = TypeVar("Record")


def rows_of(records: Sequence[object]) -> bytes:
    """The records as an Arrow stream.

    They are dataclasses of one kind, with numbers, texts, tuples and dataclasses in them.
    """
    return to_stream(pa.Table.from_struct_array(_column(records)) if records else pa.table({}))


def records_of(rows: bytes, kind: type[Record]) -> list[Record]:
    """The records in the rows that `rows_of` made of them."""
    table = from_stream(rows)
    return _values(table.to_struct_array().combine_chunks(), kind) if table.num_columns else []


def _column(values: Sequence[Any]) -> pa.Array:
    if values and is_dataclass(values[0]):
        names = [each.name for each in fields(values[0])]
        columns = [_column([getattr(value, name) for value in values]) for name in names]
        return pa.StructArray.from_arrays(columns, names)
    if values and isinstance(values[0], tuple):
        ends = list(accumulate(map(len, values), initial=0))
        return pa.ListArray.from_arrays(ends, _column([*chain.from_iterable(values)]))
    return pa.array(values)


def _values(column: pa.Array, kind: Any) -> list[Any]:
    if not len(column):
        return []
    if isinstance(kind, type) and is_dataclass(kind):
        columns = [_values(column.field(n), each) for n, each in get_type_hints(kind).items()]
        return list(map(kind, *columns))
    if get_origin(kind) is tuple:
        within = _values(column.values, get_args(kind)[0])
        return [tuple(within[at:end]) for at, end in pairwise(column.offsets.to_pylist())]
    found: list[Any] = column.to_pylist()
    return found
