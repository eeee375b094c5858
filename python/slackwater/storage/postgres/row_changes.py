"""Changes of the rows of one table, read out of many messages of pgoutput at once, by columns.

All tuples of a relation have the same number of values, so the n-th value of all messages is found
together: it begins where the one before it ends. Values stay where they are until one copy makes a
column of texts of them.

Source: PostgreSQL's manual, "Logical Replication Message Formats"; docs/decisions 0072, 0109.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

INSERT, UPDATE, DELETE = b"IUD"
"""The kinds of changes, as messages have them. An update is of the row with the key of its new one,
or a replacement."""
REPLACEMENT = b"R"[0]
"""An update that says which row it is of: by the row that was there, or by its key."""

_TEXT, _NULL, _UNSENT = b"tnu"
_NEW, _KEY, _OLD = b"NKO"
_HEAD_BYTES = 6
"""The kind of a message, the oid of its relation, and the kind of its first tuple."""
_MARGIN = bytes(8)
"""Bytes behind the last message, so that a number that it ends within can be read, and refused."""

_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Positions: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Tuples:
    """Rows as texts, by the columns of their collection.

    `unsent` has, by the numbers of rows, the columns whose values an update does not change, and
    that are too large to be sent again; these are NULL in `columns`. In rows that have only a key
    all other values are NULL, which says nothing about them.
    """

    columns: tuple[pa.Array, ...]
    unsent: Mapping[int, Sequence[int]] = field(default_factory=dict)

    def nulls(self, column: int) -> int:
        """The number of rows that have NULL in a column, but for what was not sent."""
        unsent = sum(column in columns for columns in self.unsent.values())
        return int(self.columns[column].null_count) - unsent


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Changes of rows, in their order.

    `kinds` has a byte for each: `INSERT`, `UPDATE`, `REPLACEMENT`, `DELETE`. All but `DELETE` have
    the next row of `new`; `REPLACEMENT` and `DELETE` have the next of `old`. `has_all`: whatever
    takes a row away has the whole of it in `old`; else some have only its key.
    """

    kinds: bytes
    new: Tuples
    old: Tuples
    has_all: bool

    def replaced(self) -> Iterator[tuple[int, int]]:
        """The numbers of those rows of `new` that have one in `old`, and of that."""
        new = old = 0
        for kind in self.kinds:
            if kind == REPLACEMENT:
                yield new, old
            new += kind != DELETE
            old += kind in (REPLACEMENT, DELETE)


def changed_relation(message: bytes) -> int | None:
    """The oid of the relation of which a message changes a row; None: it says something else.

    Raises ValueError for a message that ends early.
    """
    if message[:1] not in (b"I", b"U", b"D"):
        return None
    if len(message) < _HEAD_BYTES:
        raise ValueError("a message of pgoutput ends early")
    return int.from_bytes(message[1:5], "big")


def row_changes(messages: Sequence[bytes], places: Sequence[int | None]) -> RowChanges:
    """The changes that messages about rows of one relation tell of.

    `places` has, for each column of the collection, the place of its values in the relation; None:
    it has none. The messages have less than 2 GiB. Raises ValueError for what is no such message.
    """
    sizes = np.fromiter(map(len, messages), np.int64, len(messages))
    if (sizes < _HEAD_BYTES).any():
        raise ValueError("a message of pgoutput ends early")
    reader = _Reader(b"".join((*messages, _MARGIN)), places)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    kinds, tuple_kinds = reader.bytes[starts], reader.bytes[starts + _HEAD_BYTES - 1]
    _check_kinds(kinds, tuple_kinds)
    has_old, has_new = tuple_kinds != _NEW, kinds != DELETE
    old, old_ends = reader.tuples(starts[has_old] + _HEAD_BYTES, ends[has_old])
    new_at = starts + _HEAD_BYTES
    new_at[has_old] = old_ends + 1
    is_replaced = has_old & has_new
    _check_ends(new_at[is_replaced], ends[is_replaced])
    if (reader.bytes[new_at[is_replaced] - 1] != _NEW).any():
        raise ValueError("an update has a new row of an unknown kind")
    new, _ = reader.tuples(new_at[has_new], ends[has_new])
    has_all = bool(((tuple_kinds == _OLD) | (kinds == INSERT)).all())
    kinds[is_replaced] = REPLACEMENT
    return RowChanges(kinds.tobytes(), new, old, has_all)


def _check_kinds(kinds: _Bytes, tuple_kinds: _Bytes) -> None:
    is_insert, is_update, is_delete = kinds == INSERT, kinds == UPDATE, kinds == DELETE
    comes = (tuple_kinds == _NEW) & (is_insert | is_update)
    goes = ((tuple_kinds == _KEY) | (tuple_kinds == _OLD)) & (is_update | is_delete)
    if not (comes | goes).all():
        raise ValueError("a change of a row is of an unknown kind")


class _Reader:
    """Reads tuples that begin at given places of the data."""

    def __init__(self, data: bytes, places: Sequence[int | None]) -> None:
        self._data = data
        self._places = places
        self.bytes: _Bytes = np.frombuffer(data, np.uint8)
        # The numbers that begin at each byte.
        self._u16 = np.ndarray((len(data) - 1,), ">u2", data, strides=(1,))
        self._u32 = np.ndarray((len(data) - 3,), ">u4", data, strides=(1,))

    def tuples(self, at: _Positions, ends: _Positions) -> tuple[Tuples, _Positions]:
        """The tuples of messages with these ends, and where the tuples end."""
        if len(at) == 0:
            return Tuples((pa.array([], pa.string()),) * len(self._places)), at
        _check_ends(at + 2, ends)
        counts = self._u16[at]
        width = int(counts[0])
        if (counts != width).any():
            raise ValueError("rows of a relation have another number of values")
        values = _Values.empty(width, len(at))
        at = at + 2
        for place in range(width):
            at = self._put_values(values, place, at, ends)
        own = [place for place in self._places if place is not None]
        if any(place >= width for place in own):
            raise ValueError("a row has fewer values than its relation")
        found = self._texts(values, own)
        nulls = pa.nulls(len(at), pa.string())
        columns = tuple(nulls if place is None else next(found) for place in self._places)
        return Tuples(columns, self._unsent(values)), at

    def _put_values(
        self, values: _Values, place: int, at: _Positions, ends: _Positions
    ) -> _Positions:
        """Puts down the values that begin there, and returns where they end."""
        _check_ends(at + 1, ends)
        kinds = self.bytes[at]
        is_text = kinds == _TEXT
        if not (is_text | (kinds == _NULL) | (kinds == _UNSENT)).all():
            raise ValueError("a value is of an unknown kind")
        begins = np.where(is_text, at + 5, at + 1)
        after = np.where(is_text, begins + self._u32[at + 1], begins)
        _check_ends(after, ends)
        values.kinds[:, place] = kinds
        values.begins[:, place] = begins
        values.ends[:, place] = after
        return after

    def _texts(self, values: _Values, own: Sequence[int]) -> Iterator[pa.Array]:
        """The columns of the values at those places. Raises ValueError for what is no UTF-8."""
        count, width = values.kinds.shape
        if not own:
            return iter(())
        # All values, and what is between each and the next, in the order of the data.
        edges = np.empty(2 * count * width, np.int32)
        edges[0::2], edges[1::2] = values.begins.ravel(), values.ends.ravel()
        buffers = [None, pa.py_buffer(edges), pa.py_buffer(self._data)]
        spans = pa.Array.from_buffers(pa.binary(), len(edges) - 1, buffers)
        numbers = 2 * np.arange(count * width).reshape(count, width)
        chosen = pa.array(numbers[:, own].T.ravel(), mask=(values.kinds[:, own] != _TEXT).T.ravel())
        texts = spans.take(chosen).cast(pa.string())
        return (texts.slice(column * count, count) for column in range(len(own)))

    def _unsent(self, values: _Values) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        is_unsent = values.kinds == _UNSENT
        if is_unsent.any():
            for column, place in enumerate(self._places):
                rows = () if place is None else np.flatnonzero(is_unsent[:, place]).tolist()
                for number in rows:
                    found.setdefault(number, []).append(column)
        return found


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of tuples, a row for each: their kinds, and where their texts are."""

    kinds: _Bytes
    begins: _Positions
    ends: _Positions

    @staticmethod
    def empty(width: int, count: int) -> _Values:
        begins, ends = np.empty((2, count, width), np.int64)
        return _Values(np.empty((count, width), np.uint8), begins, ends)


def _check_ends(at: _Positions, ends: _Positions) -> None:
    if (at > ends).any():
        raise ValueError("a message of pgoutput ends early")
