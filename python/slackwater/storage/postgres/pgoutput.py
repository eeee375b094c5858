"""The messages of PostgreSQL's plugin `pgoutput`, in version 1 of its protocol, as values.

Numbers are in network order, names end with a zero byte. Messages that change rows are read
together, in `row_changes`.

Source: PostgreSQL's manual, "Logical Replication Message Formats"; docs/decisions 0072.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Identity = Literal["d", "n", "f", "i"]
"""REPLICA IDENTITY: DEFAULT, NOTHING, FULL or USING INDEX."""


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins whose commit is at `commit_lsn`."""

    commit_lsn: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The transaction ends. `end_lsn` is the first position behind its commit."""

    commit_lsn: int
    end_lsn: int


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column. `is_key`: it belongs to the replica identity, as all do with FULL."""

    name: str
    type_oid: int
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """The columns of a table from here on."""

    oid: int
    schema: str
    name: str
    identity: Identity
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Truncate:
    oids: tuple[int, ...]


Message = Begin | Commit | Relation | Truncate

_IDENTITIES: Mapping[int, Identity] = {
    b"d"[0]: "d",
    b"n"[0]: "n",
    b"f"[0]: "f",
    b"i"[0]: "i",
}
_SILENT = frozenset(b"OYM")
"""Origins, types, and what applications write beside tables: nothing of it changes rows."""
_U16, _U32, _U64 = struct.Struct(">H"), struct.Struct(">I"), struct.Struct(">Q")


def decoded(data: bytes) -> Message | None:
    """A message that changes no single row; None for those that change nothing.

    Raises ValueError for what is none of this version.
    """
    try:
        return _decoded(data)
    except (struct.error, IndexError) as error:
        raise ValueError(f"a message of pgoutput ends early: {error}") from None


def _decoded(data: bytes) -> Message | None:
    kind = data[:1]
    match kind:
        case b"B":
            return Begin(_U64.unpack_from(data, 1)[0])
        case b"C":
            return Commit(_U64.unpack_from(data, 2)[0], _U64.unpack_from(data, 10)[0])
        case b"R":
            return _relation(data)
        case b"T":
            (count,) = _U32.unpack_from(data, 1)
            return Truncate(tuple(_U32.unpack_from(data, 6 + 4 * n)[0] for n in range(count)))
        case _ if kind and kind[0] in _SILENT:
            return None
        case _:
            raise ValueError(f"pgoutput sent a message of the unknown kind {kind!r}")


def _oid(data: bytes) -> int:
    found: int = _U32.unpack_from(data, 1)[0]
    return found


def _relation(data: bytes) -> Relation:
    schema, at = _name(data, 5)
    name, at = _name(data, at)
    identity = _IDENTITIES.get(data[at])
    if identity is None:
        raise ValueError(f"a relation has the unknown replica identity {data[at]}")
    (count,) = _U16.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        is_key = bool(data[at] & 1)
        column, at = _name(data, at + 1)
        columns.append(RelationColumn(column, _U32.unpack_from(data, at)[0], is_key))
        at += 8
    # An empty name of a schema is pg_catalog.
    return Relation(_oid(data), schema or "pg_catalog", name, identity, tuple(columns))


def _name(data: bytes, at: int) -> tuple[str, int]:
    end = data.find(0, at)
    if end < 0:
        raise ValueError("a message of pgoutput ends within a name")
    return data[at:end].decode(), end + 1
