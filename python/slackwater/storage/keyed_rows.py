"""The present rows of the keys of an upsert collection, for the messages that replace them.

Source: spec controllers 5.4; docs/decisions 0069.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from slackwater.repr.dataflow_error import DataflowError
from slackwater.repr.errors import FatalError, user_error
from slackwater.storage.envelope import Datum
from slackwater.storage.row_bytes import row_keys

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
    count = len(values) + len(rows)
    values.update(zip(row_keys(keys), rows, strict=True))
    if len(values) < count:
        raise FatalError(f"a key of {name} has more than one row")


class RowsInMemory:
    """All rows of the collection in memory. Errors take the place of rows.

    Rows are bytes (see `row_bytes`). `limit_bytes` is the most that they may take.
    """

    def __init__(self, values: dict[bytes, Datum], limit_bytes: int, name: str) -> None:
        self._values = values
        self._limit_bytes = limit_bytes
        self._name = name
        self._errors = _errors(values)
        self.size_bytes = _size(values.values())

    def lookup(self, keys: Collection[bytes]) -> Mapping[bytes, Datum]:
        values = self._values
        return {key: values[key] for key in keys if key in values}

    def replace(self, values: Mapping[bytes, Datum | None]) -> None:
        self.size_bytes = self._size_with(values)
        if self._errors:
            self._errors = {key: each for key, each in self._errors.items() if key not in values}
        self._errors |= _errors(values)
        for key, value in values.items():
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value

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
        more = _size(value for value in values.values() if value is not None)
        return self.size_bytes + more - _size(held[key] for key in values if key in held)

    def get(self, key: bytes) -> Datum | None:
        """The value of a key; None: it has nothing."""
        return self._values.get(key)

    def __iter__(self) -> Iterator[bytes]:
        """All keys that have something."""
        return iter(self._values)

    @property
    def errors(self) -> Mapping[bytes, DataflowError]:
        """The errors, by their keys."""
        return self._errors

    def __len__(self) -> int:
        return len(self._values)


def _errors(values: Mapping[bytes, Datum | None]) -> dict[bytes, DataflowError]:
    return {
        key: each
        for key, each in values.items()
        if not isinstance(each, bytes) and each is not None and not isinstance(each, tuple)
    }


def _size(values: Iterable[Datum]) -> int:
    sizes = [len(each) if isinstance(each, bytes) else ENTRY_BYTES for each in values]
    return sum(sizes) + ENTRY_BYTES * len(sizes)
