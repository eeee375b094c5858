"""Runs ``.slt`` files: sqllogictest's format, on PySpark over the whole product.

Records, separated by empty lines; ``#`` begins a comment line:

* ``statement ok`` / ``statement error CONDITION SQLSTATE``, then the SQL;
* ``query TYPES [nosort|rowsort] [retry]``, then the SQL, ``----`` and the rows, columns
  separated by two or more blanks or a tab. TYPES has a letter for each column: I integers, T text,
  R and D numbers with a fraction, B booleans. NULL is ``NULL``, an empty text ``(empty)``;
* ``let NAME``, then a query of one value that later records write as ``$NAME``;
* ``connection NAME``: the session of the next record alone;
* ``file PATH``, then lines: they appear below ``$FOLDER`` as a whole file at once;
* ``halt`` ends the file.

Each file runs in a schema of its own, in which each of its sessions begins.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field

from tests.support.applications.application import SqlError
from tests.support.waiting import wait_until

_CELLS = re.compile(r"\t|  +")
_TYPES = {"I": int, "T": str, "R": str, "D": str, "B": bool}


@dataclass(frozen=True, slots=True)
class Record:
    """One record. `head` is its first line in words, `sql` the text, `expected` the lines below."""

    line: int
    head: list[str]
    sql: str = ""
    expected: list[str] = field(default_factory=list)


class UnexpectedError(Exception):
    """What a record expected did not come; the text says what did."""


def sql_text(path):
    """The one statement of a `.sql` file, without comment lines and semicolon."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("--")]
    return "\n".join(lines).strip().removesuffix(";")


def parse(text):
    """The records of a file."""
    records = []
    block = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if line.startswith("#"):
            continue
        if line.strip():
            block.append((number, line))
        elif block:
            records.append(_record(block))
            block = []
    return records


def _record(block):
    number, head = block[0]
    lines = [line for _, line in block[1:]]
    if "----" in lines:
        split = lines.index("----")
        return Record(number, head.split(), "\n".join(lines[:split]), lines[split + 1 :])
    return Record(number, head.split(), "\n".join(lines))


def run(place, records):
    """Runs the records of a file in a schema of its own. Raises UnexpectedError."""
    _Run(place).all(records)


class _Run:
    def __init__(self, place):
        self._place = place
        self._values = {"FOLDER": str(place.folder), "SCHEMA": place.schema}
        self._sessions = {"main"}
        self._next = "main"

    def all(self, records):
        for record in records:
            if record.head[0] == "halt":
                return
            try:
                self._one(record)
            except UnexpectedError as error:
                raise UnexpectedError(f"{record.line}: {record.sql}\n{error}") from None

    def _one(self, record):
        kind, *words = record.head
        if kind == "connection":
            self._next = words[0]
            if words[0] not in self._sessions:
                self._sessions.add(words[0])
                self._place.use(words[0])
            return
        session, self._next = self._next, "main"
        match kind:
            case "statement":
                self._statement(record, words, session)
            case "query":
                self._query(record, words, session)
            case "let":
                self._values[words[0]] = str(
                    self._place.value(self._filled(record.sql), session=session)
                )
            case "file":
                self._file(words[0], record.sql)
            case _:
                raise UnexpectedError(f"unknown record {kind}")

    def _filled(self, text):
        for name, value in self._values.items():
            text = text.replace(f"${name}", value)
        return text

    def _statement(self, record, words, session):
        text = self._filled(record.sql)
        if words[0] == "ok":
            try:
                self._place.sql(text, session=session)
            except SqlError as error:
                raise UnexpectedError(error.message) from None
            return
        try:
            self._place.sql(text, session=session)
        except SqlError as error:
            found = [error.condition, error.sqlstate]
            if found != words[1:3]:
                raise UnexpectedError(f"wanted {words[1:3]}, got {found}: {error}") from None
            _check_message(error)
            return
        raise UnexpectedError(f"wanted {words[1:3]}, but it succeeded")

    def _query(self, record, words, session):
        types, options = words[0], words[1:]
        wanted = [_cells(self._filled(line)) for line in record.expected]
        sort = "rowsort" in options
        found = None

        def fits():
            nonlocal found
            found = self._found(record, types, session)
            return _in_order(found, sort) == _in_order(wanted, sort)

        if "retry" in options:
            with contextlib.suppress(AssertionError):
                wait_until(fits)
                return
        elif fits():
            return
        raise UnexpectedError(f"wanted {_shown(wanted)}\ngot {_shown(found)}")

    def _found(self, record, types, session):
        try:
            result = self._place.sql(self._filled(record.sql), session=session)
        except SqlError as error:
            raise UnexpectedError(error.message) from None
        if len(result.columns) != len(types):
            raise UnexpectedError(f"{len(types)} columns wanted, got {result.columns}")
        for row in result.rows:
            for letter, value in zip(types, row, strict=True):
                if value is not None and not isinstance(value, _TYPES[letter]):
                    raise UnexpectedError(f"{value!r} is not of the type {letter}")
        return [[_cell(value) for value in row] for row in result.rows]

    def _file(self, name, text):
        path = self._place.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_name(f".{path.name}")
        written.write_text(self._filled(text) + "\n")
        written.rename(path)


def _check_message(error):
    """No stack trace in a message; and the state in it, as everywhere in Spark."""
    if "Traceback" in error.message or "\n\tat " in error.message.split("JVM stacktrace")[0]:
        raise UnexpectedError(f"a stack trace in the message: {error.message}")
    if f"SQLSTATE: {error.sqlstate}" not in error.message:
        raise UnexpectedError(f"no SQLSTATE in the message: {error.message}")


def _cells(line):
    return [cell.strip() for cell in _CELLS.split(line.strip())]


def _cell(value):
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return " ".join(value.split()) or "(empty)"
    return str(value)


def _in_order(rows, sort):
    return sorted(rows) if sort else rows


def _shown(rows):
    return "".join("\n  " + "  ".join(row) for row in rows[:30]) or " no rows"
