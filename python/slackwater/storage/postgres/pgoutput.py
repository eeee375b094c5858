"""The messages of PostgreSQL's plugin `pgoutput`, in version 1 of its protocol, as values.

Numbers are in network order, names end with a zero byte, values are texts in UTF-8.

Source: PostgreSQL's manual, "Logical Replication Message Formats"; docs/decisions 0072.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal


class Unsent(Enum):
    """A value that an update does not change and that is too large to be sent again."""

    UNSENT = "u"


UNSENT = Unsent.UNSENT

Value = str | Unsent | None
Tuple = Sequence[Value]
"""The values of a row by the columns of its relation. In a tuple that has only a key the values of
all other columns are None, which says nothing about them."""

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
class Insert:
    oid: int
    new: Tuple


@dataclass(frozen=True, slots=True)
class Update:
    """`old` None: its key is that of `new`. With `has_all` it is the whole row, else its key."""

    oid: int
    new: Tuple
    old: Tuple | None = None
    has_all: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """`old` is the whole row, or with `has_all` False its key."""

    oid: int
    old: Tuple
    has_all: bool = False


@dataclass(frozen=True, slots=True)
class Truncate:
    oids: tuple[int, ...]


Change = Insert | Update | Delete | Truncate
Message = Begin | Commit | Relation | Change

_IDENTITIES: Mapping[int, Identity] = {
    b"d"[0]: "d",
    b"n"[0]: "n",
    b"f"[0]: "f",
    b"i"[0]: "i",
}
_SILENT = frozenset(b"OYM")
"""Origins, types, and what applications write beside tables: nothing of it changes rows."""
_NEW, _KEY, _OLD = b"N"[0], b"K"[0], b"O"[0]
_U16, _U32, _U64 = struct.Struct(">H"), struct.Struct(">I"), struct.Struct(">Q")


def decoded(data: bytes) -> Message | None:
    """The message; None for those that change nothing.

    Raises ValueError for what is none of this version.
    """
    try:
        return _decoded(data)
    except (struct.error, IndexError) as error:
        raise ValueError(f"a message of pgoutput ends early: {error}") from None


def _decoded(data: bytes) -> Message | None:
    kind = data[:1]
    match kind:
        case b"I":
            new, _ = _values(data, 6)
            return Insert(_oid(data), new)
        case b"U":
            return _update(data)
        case b"D":
            old, _ = _values(data, 6)
            return Delete(_oid(data), old, data[5] == _OLD)
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


def _update(data: bytes) -> Update:
    kind = data[5]
    if kind == _NEW:
        new, _ = _values(data, 6)
        return Update(_oid(data), new)
    if kind not in (_KEY, _OLD):
        raise ValueError(f"an update has a tuple of the unknown kind {kind}")
    old, at = _values(data, 6)
    new, _ = _values(data, at + 1)
    return Update(_oid(data), new, old, kind == _OLD)


def _values(data: bytes, at: int) -> tuple[list[Value], int]:
    """The values of a tuple, and where it ends."""
    (count,) = _U16.unpack_from(data, at)
    at += 2
    values: list[Value] = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 0x74:  # t
            (size,) = _U32.unpack_from(data, at)
            at += 4
            if at + size > len(data):
                raise ValueError("a message of pgoutput ends within a value")
            values.append(data[at : at + size].decode())
            at += size
        elif kind == 0x6E:  # n
            values.append(None)
        elif kind == 0x75:  # u
            values.append(UNSENT)
        else:
            raise ValueError(f"a value is of the unknown kind {kind}")
    return values, at


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
