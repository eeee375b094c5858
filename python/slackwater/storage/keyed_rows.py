"""What the keys of an upsert collection have now, for the messages that replace it.

Source: spec controllers 5.4; docs/decisions 0069.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from slackwater.repr.errors import user_error
from slackwater.storage.envelope import Datum

ENTRY_BYTES = 200
"""About what a key takes beside its row: its digest, and its place in the table."""


class KeyedRows(Protocol):
    """The present rows and errors of a collection, by the digests of their keys."""

    def lookup(self, keys: Collection[bytes]) -> Mapping[bytes, Datum]:
        """What these keys have; those that have nothing are left out."""
        ...

    def replace(self, values: Mapping[bytes, Datum | None]) -> None:
        """From now on the keys have these values; None: nothing."""
        ...


class RowsInMemory:
    """All rows of the collection in memory. Errors take the place of rows.

    Rows are bytes (see `row_bytes`). `limit_bytes` is the most that they may take.
    """

    def __init__(self, values: dict[bytes, Datum], limit_bytes: int, name: str) -> None:
        self._values = values
        self._limit_bytes = limit_bytes
        self._name = name
        self.size_bytes = sum(map(_size, values.values()))

    def lookup(self, keys: Collection[bytes]) -> Mapping[bytes, Datum]:
        values = self._values
        return {key: values[key] for key in keys if key in values}

    def replace(self, values: Mapping[bytes, Datum | None]) -> None:
        held = self._values
        for key, value in values.items():
            old = held.get(key)
            self.size_bytes -= 0 if old is None else _size(old)
            if value is None:
                held.pop(key, None)
            else:
                held[key] = value
                self.size_bytes += _size(value)

    def check(self) -> None:
        """Raises SLACKWATER_UPSERT_MEMORY when the rows take more than they may."""
        if self.size_bytes > self._limit_bytes:
            raise user_error(
                "SLACKWATER_UPSERT_MEMORY",
                objectName=self._name,
                keys=str(len(self._values)),
                used=str(self.size_bytes),
                limit=str(self._limit_bytes),
            )

    def __len__(self) -> int:
        return len(self._values)


def _size(value: Datum) -> int:
    return ENTRY_BYTES + (len(value) if isinstance(value, bytes) else ENTRY_BYTES)
