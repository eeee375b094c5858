"""The present rows of the keys of an upsert collection, for the messages that replace them.

Source: spec controllers 5.4; docs/decisions 0069.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from slackwater.repr.dataflow_error import DataflowError
from slackwater.repr.errors import FatalError, user_error
from slackwater.storage.envelope import Datum, row_key
from slackwater.storage.row_bytes import plain_rows

ENTRY_BYTES = 200
"""About what a key takes beside its row: its digest, and its place in the table."""


class KeyedRows(Protocol):
    """The present rows and errors of a collection, by the digests of their keys."""

    def lookup(self, keys: Collection[bytes]) -> Mapping[bytes, Datum]:
        """The values of these keys; those that have nothing are left out."""
        ...

    def replace(self, values: Mapping[bytes, Datum | None]) -> None:
        """From now on the keys have these values; None: nothing."""
        ...


def add_rows(values: dict[bytes, Datum], keys: pa.Table, rows: Sequence[bytes], name: str) -> None:
    """Adds rows to the values of their keys, which are the columns of `keys`.

    Raises FatalError when a key has something already.
    """
    for key, row in zip(plain_rows(keys), rows, strict=True):
        if values.setdefault(row_key(key), row) is not row:
            raise FatalError(f"a key of {name} has more than one row")


class RowsInMemory:
    """All rows of the collection in memory. Errors take the place of rows.

    Rows are bytes (see `row_bytes`). `limit_bytes` is the most that they may take.
    """

    def __init__(self, values: dict[bytes, Datum], limit_bytes: int, name: str) -> None:
        self._values = values
        self._limit_bytes = limit_bytes
        self._name = name
        self._errors = {
            key: each for key, each in values.items() if not isinstance(each, bytes | tuple)
        }
        self.size_bytes = sum(map(_size, values.values()))

    def lookup(self, keys: Collection[bytes]) -> Mapping[bytes, Datum]:
        values = self._values
        return {key: values[key] for key in keys if key in values}

    def replace(self, values: Mapping[bytes, Datum | None]) -> None:
        self.size_bytes = self._size_with(values)
        for key, value in values.items():
            self._errors.pop(key, None)
            if value is None:
                self._values.pop(key, None)
                continue
            self._values[key] = value
            if not isinstance(value, bytes | tuple):
                self._errors[key] = value

    def check(self, values: Mapping[bytes, Datum | None]) -> None:
        """Raises SLACKWATER_UPSERT_MEMORY when the rows would take more than they may with these
        values."""
        wanted = self._size_with(values)
        if wanted > max(self._limit_bytes, self.size_bytes):
            raise user_error(
                "SLACKWATER_UPSERT_MEMORY",
                objectName=self._name,
                keys=str(len(self._values)),
                wanted=str(wanted),
                limit=str(self._limit_bytes),
            )

    def _size_with(self, values: Mapping[bytes, Datum | None]) -> int:
        held = self._values
        more = sum(_size(value) for value in values.values() if value is not None)
        return self.size_bytes + more - sum(_size(held[key]) for key in values if key in held)

    def __iter__(self) -> Iterator[bytes]:
        """All keys that have something."""
        return iter(self._values)

    @property
    def errors(self) -> Mapping[bytes, DataflowError]:
        """The errors, by their keys."""
        return self._errors

    def __len__(self) -> int:
        return len(self._values)


def _size(value: Datum) -> int:
    return ENTRY_BYTES + (len(value) if isinstance(value, bytes) else ENTRY_BYTES)
