"""Rows of payloads: the columns of a table and what a change says of them.

CockroachDB writes BYTES as ``\\x`` and hexadecimal digits, DECIMAL as a number, times as ISO 8601.
What a table cannot take is `Drift`: the payload says something that its declaration does not.

Source: spec checkpoint 5.6, traps 7 to 10.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from slackwater.repr.relation import RelationDesc
from slackwater.storage.changefeed.messages import ChangeRecord, exact_text
from slackwater.storage.text_values import from_json, shown

FeedRow = tuple[Any, ...]
_LEAST, _MOST = -(2**63), 2**63 - 1


class Drift(Exception):
    """A payload that the table cannot take. `reason` says why, without the values."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class FeedTable:
    """A table of a feed: its columns, those of its key, and the one for what has no other."""

    desc: RelationDesc
    key: tuple[str, ...]
    extras: str | None = None


class Reader:
    """Makes rows of the changes of one table."""

    def __init__(self, table: FeedTable) -> None:
        self._table = table
        self._cells = [
            (name, field.nullable, _cell(field.type))
            for name, field in zip(table.desc.names, table.desc.arrow_schema(), strict=True)
            if name != table.extras
        ]
        self._known = frozenset(name for name, _, _ in self._cells)

    def row(self, change: ChangeRecord) -> FeedRow | None:
        """The row that the change leaves; None: none. Raises `Drift`."""
        key = json.loads(change.key, parse_float=Decimal)
        if len(key) != len(self._table.key):
            raise Drift(f"the key has {len(key)} columns and not {len(self._table.key)}")
        if change.after is None:
            return None
        after = json.loads(change.after, parse_float=Decimal)
        if [after.get(column) for column in self._table.key] != key:
            raise Drift(f"the key is not that of {', '.join(self._table.key)}")
        row = [self._value(after, *cell) for cell in self._cells]
        unknown = {name: value for name, value in after.items() if name not in self._known}
        if self._table.extras is not None:
            at = self._table.desc.names.index(self._table.extras)
            row.insert(at, exact_text(unknown) if unknown else None)
        elif unknown:
            raise Drift(f"unknown columns: {shown(', '.join(sorted(unknown)))}")
        return tuple(row)

    def updates(self, updates: Sequence[tuple[FeedRow, int]]) -> pa.Table:
        """Rows with their diffs, as the collection takes them."""
        return self._table.desc.with_diffs(updates)

    @staticmethod
    def _value(
        after: Mapping[str, Any], name: str, nullable: bool, read: Callable[[Any], Any]
    ) -> Any:
        value = after.get(name)
        if value is None:
            if not nullable:
                raise Drift(f"the column {name} has no value")
            return None
        try:
            return read(value)
        except ValueError:
            raise Drift(f"the column {name} has a value of another type") from None


def _cell(kind: pa.DataType) -> Callable[[Any], Any]:
    """The function that makes a JSON value one of the column's; it raises ValueError."""
    if pa.types.is_int64(kind):
        return lambda value: (
            value if type(value) is int and _LEAST <= value <= _MOST else from_json(value, kind)
        )
    if pa.types.is_string(kind):
        return _text
    if pa.types.is_binary(kind):
        return _bytes
    return lambda value: from_json(value, kind)


def _text(value: Any) -> str:
    if type(value) is not str:
        return exact_text(value)
    if not value.isascii():
        value.encode()  # A lone half of a surrogate pair is a ValueError.
    return value


def _bytes(value: Any) -> bytes:
    if type(value) is not str or not value.startswith("\\x"):
        raise ValueError("no bytes as CockroachDB writes them")
    return bytes.fromhex(value[2:])
