"""Copies of tables of PostgreSQL: of a large one over several connections at once.

Each connection reads ranges of the table's blocks, by `ctid`, in the snapshot that all of them
have. So the rows are those of one copy, in another order.

Source: docs/decisions 0098; PostgreSQL's manual, "SET TRANSACTION" and "TID Scan".
"""

from __future__ import annotations

import contextlib
import io
import os
import queue
import socket
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import csv

PIECE_BYTES = 8 * 1024 * 1024
"""About so much of a copy is read at once."""
LEAST_BYTES = 8 * 1024 * 1024
"""A range has about so much of a table, or more. A table below two such is read at once."""
RANGES_EACH = 8
"""About so many ranges of a large table are read over one connection, or fewer."""


@dataclass(frozen=True, slots=True)
class TableSize:
    """The size of a table: its own blocks, and its bytes with the large values beside them."""

    blocks: int
    size_bytes: int


def ranges(size: TableSize, connections: int) -> list[str | None]:
    """The conditions of ranges which have each row of a table once; None: all rows.

    The last range has no end: a table may have more blocks than it had when they were counted.
    """
    most = min(size.blocks, size.size_bytes // LEAST_BYTES, RANGES_EACH * connections)
    if connections == 1 or most < 2:
        return [None]
    blocks = -(-size.blocks // most)
    starts = range(0, size.blocks, blocks)
    found: list[str | None] = []
    for start in starts:
        end = "" if start == starts[-1] else f" AND ctid < '({start + blocks},0)'::tid"
        found.append(f"ctid >= '({start},0)'::tid{end}")
    return found


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows that a copy takes: columns, the table, and a condition of its publication.

    `names` are the columns, `columns` and `table` SQL for them.
    """

    names: tuple[str, ...]
    columns: str
    table: str
    condition: str | None = None

    def statement(self, within: str | None) -> str:
        """The statement that sends the rows of a range; None: all of them."""
        conditions = [f"({each})" for each in (self.condition, within) if each is not None]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        query = f"SELECT {self.columns} FROM ONLY {self.table}{where}"
        return f"COPY ({query}) TO STDOUT (FORMAT csv)"


class RangeReader(Protocol):
    """A reader of ranges of a table, one after the other, in a thread of its own."""

    def rows(self, within: str | None) -> Iterator[pa.Table]:
        """The rows of a range in pieces, each value as text."""
        ...

    def interrupt(self) -> None:
        """Lets `rows` fail soon, whatever it waits for. Any thread may call this."""
        ...


class ConnectionReader:
    """Reads ranges over one connection of psycopg's, in whose transaction they are."""

    def __init__(self, connection: Any, selection: Selection) -> None:
        self._connection = connection
        self._selection = selection
        # A number of its own: that of the connection may become another file's.
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))

    def close(self) -> None:
        """Leaves the connection, which stays open."""
        self._socket.close()

    def rows(self, within: str | None) -> Iterator[pa.Table]:
        names = self._selection.names
        statement = self._selection.statement(within)
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            piece = io.BytesIO()
            for row in copy:
                piece.write(row)
                if piece.tell() >= PIECE_BYTES:
                    yield _texts(piece.getvalue(), names)
                    piece = io.BytesIO()
            if piece.tell():
                yield _texts(piece.getvalue(), names)

    def interrupt(self) -> None:
        # Who reads sees the end of the connection, unless that has ended already.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


class ParallelCopy:
    """The rows of ranges that several readers take from one list.

    Promise: `pieces` gives each row once, or raises what the first reader that fails raises. At
    most two pieces a reader are in memory. After `end` no thread uses a reader.
    """

    def __init__(self, readers: Sequence[RangeReader], wanted: Sequence[str | None]) -> None:
        self._readers = readers
        self._wanted = deque(wanted)
        self._found: queue.Queue[pa.Table | BaseException | None] = queue.Queue(len(readers))
        self._is_over = threading.Event()
        self._left = len(readers)
        for number, reader in enumerate(readers):
            name = f"copy-{number}"
            threading.Thread(target=self._read, args=(reader,), name=name, daemon=True).start()

    def _read(self, reader: RangeReader) -> None:
        try:
            while not self._is_over.is_set():
                try:
                    within = self._wanted.popleft()
                except IndexError:
                    break
                for piece in reader.rows(within):
                    self._found.put(piece)
                    if self._is_over.is_set():
                        break
        except BaseException as error:  # Whoever takes the pieces is told.
            self._found.put(error)
        finally:
            self._found.put(None)

    def pieces(self) -> Iterator[pa.Table]:
        """The rows, in any order."""
        while self._left:
            found = self._found.get()
            if found is None:
                self._left -= 1
            elif isinstance(found, BaseException):
                self.end()
                raise found
            else:
                yield found

    def end(self) -> None:
        """Ends reading, at whatever it is. Nothing happens after the last piece."""
        self._is_over.set()
        if self._left:
            for reader in self._readers:
                reader.interrupt()
        while self._left and not sys.is_finalizing():  # Then there are no threads any more.
            self._left -= self._found.get() is None


def _texts(data: bytes, columns: Sequence[str]) -> pa.Table:
    names = [str(place) for place in range(len(columns))]
    found = csv.read_csv(
        io.BytesIO(data),
        csv.ReadOptions(column_names=names, block_size=max(len(data) + 1, 1 << 20)),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return found.rename_columns(list(columns))
