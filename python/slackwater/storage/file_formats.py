"""One file's bytes to rows: CSV, JSON lines, Parquet.

A file either gives a table in the relation's Arrow schema, or the physical lines that are wrong.
CSV follows Spark's reader: an empty field and the NULL text are NULL, quoted or not; quotes
inside quotes are doubled or follow a backslash; blank lines do not count. With a header, declared
columns are found by name (case-insensitively), additional columns of the file are left out.
"""

from __future__ import annotations

import gzip
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from slackwater.repr.relation import RelationDesc
from slackwater.storage.text_values import convert, from_json_cells

FileFormat = Literal["CSV", "JSON", "PARQUET"]


@dataclass(frozen=True, slots=True)
class Format:
    """The format of a source's files."""

    kind: FileFormat
    header: bool = False
    delimiter: str = ","
    null_text: str = ""


@dataclass(frozen=True, slots=True)
class BadRow:
    """`line` is the 1-based physical line on which the row begins; 0 means the whole file."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class FileRows:
    """The good rows of a file in order, and its bad ones by line."""

    table: pa.Table
    bad: tuple[BadRow, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One CSV record. `problem` says why it could not be cut into cells."""

    line: int
    cells: list[str]
    problem: str | None = None


class UnreadableFileError(Exception):
    """The file as a whole cannot be read; the text says why."""


def read_rows(data: bytes, form: Format, desc: RelationDesc, *, packed: bool = False) -> FileRows:
    """The rows of a file's contents. `packed`: the contents are compressed with gzip.

    Raises UnreadableFileError when no row can be told from another.
    """
    if form.kind == "PARQUET":
        return FileRows(_read_parquet(data, desc), ())
    text = unpacked(data) if packed else data
    if form.kind == "JSON":
        return _read_json(text, desc)
    fast = _read_plain_csv(text, form, desc)
    return fast if fast is not None else _read_csv(text, form, desc)


def unpacked(data: bytes) -> bytes:
    """The contents of a gzip file. Raises UnreadableFileError."""
    try:
        return gzip.decompress(data)
    except (OSError, EOFError) as error:
        raise UnreadableFileError(f"it is not a gzip file: {error}") from None


def columns_by_name(desc: RelationDesc, header: Sequence[str], null_text: str) -> list[int]:
    """The position of each declared column in a file's header.

    A column is found by its name in the header, or by the name that Spark gives to a cell of the
    header that has none or is there twice. Raises UnreadableFileError.
    """
    ways = [_places(names) for names in (header, spark_names(header, null_text))]
    places: list[int] = []
    missing: list[str] = []
    for name in desc.names:
        found = [exact[name] for exact, _ in ways if name in exact]
        found += [folded[name.lower()] for _, folded in ways if name.lower() in folded]
        if found:
            places.append(found[0])
        else:
            missing.append(name)
    if missing:
        raise UnreadableFileError(f"its header lacks the column {', '.join(missing)}")
    return places


def _places(names: Sequence[str]) -> tuple[dict[str, int], dict[str, int]]:
    """The first position of each name, as it is written and in lower case."""
    exact = {name: position for position, name in reversed(list(enumerate(names)))}
    return exact, {name.strip().lower(): place for name, place in reversed(exact.items())}


def spark_names(header: Sequence[str], null_text: str) -> list[str]:
    """The names that Spark's reader gives to the columns of a header (`CSVUtils.makeSafeHeader`).

    A cell that is empty or NULL is `_c` and its position; names that differ but in their case, if
    at all, end in their positions.
    """
    counts = Counter(name.lower() for name in header)
    return [
        f"_c{position}"
        if name in ("", null_text)
        else f"{name}{position}"
        if counts[name.lower()] > 1
        else name
        for position, name in enumerate(header)
    ]


def plain_texts(data: bytes, form: Format) -> pa.Table | None:
    """All columns of a CSV file as text, by the fast way; None where that does not apply.

    It applies to files without quotes in which each row has as many fields as the first.
    """
    if b'"' in data or b"\x00" in data or not data.strip():
        return None
    try:
        texts: pa.Table = pa_csv.read_csv(
            pa.BufferReader(data),
            read_options=pa_csv.ReadOptions(
                use_threads=False, autogenerate_column_names=not form.header
            ),
            parse_options=pa_csv.ParseOptions(delimiter=form.delimiter, quote_char=False),
            convert_options=_TextColumns(form).options(data),
        )
    except pa.ArrowInvalid:
        return None
    if not all(pa.types.is_string(kind) for kind in texts.schema.types):
        return None  # a header that its own splitting does not explain, e.g. with lone CRs
    return texts


def _read_plain_csv(data: bytes, form: Format, desc: RelationDesc) -> FileRows | None:
    """The rows by the fast way, for files that it applies to and that have no bad rows."""
    texts = plain_texts(data, form)
    if texts is None:
        return None
    if form.header:
        texts = texts.select(columns_by_name(desc, texts.column_names, form.null_text))
    elif texts.num_columns != len(desc.columns):
        return None
    arrays: list[pa.Array] = []
    schema = desc.arrow_schema()
    for column, field in zip(texts.columns, schema, strict=True):
        converted = convert(column.combine_chunks(), field.type)
        if converted.bad or (not field.nullable and converted.values.null_count):
            return None
        arrays.append(converted.values)
    return FileRows(pa.Table.from_arrays(arrays, schema=schema), ())


@dataclass(frozen=True, slots=True)
class _TextColumns:
    """Conversion options under which every column of a file is text."""

    form: Format

    def options(self, data: bytes) -> pa_csv.ConvertOptions:
        start = 3 if data.startswith(b"\xef\xbb\xbf") else 0
        end = data.find(b"\n", start)
        first = data[start : len(data) if end < 0 else end].rstrip(b"\r").decode(errors="replace")
        cells = first.split(self.form.delimiter)
        names = cells if self.form.header else [f"f{i}" for i in range(len(cells))]
        return pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=["", self.form.null_text],
            strings_can_be_null=True,
        )


def _read_csv(data: bytes, form: Format, desc: RelationDesc) -> FileRows:
    records = csv_records(decoded(data), form.delimiter)
    places, width = list(range(len(desc.columns))), len(desc.columns)
    if form.header:
        header = next(records, None)
        if header is not None:
            if header.problem is not None:
                raise UnreadableFileError(header.problem)
            places, width = columns_by_name(desc, header.cells, form.null_text), len(header.cells)
    good: list[Record] = []
    bad: list[BadRow] = []
    for record in records:
        if record.problem is not None:
            bad.append(BadRow(record.line, record.problem))
        elif len(record.cells) != width:
            reason = f"{len(record.cells)} fields instead of {width}"
            bad.append(BadRow(record.line, reason))
        else:
            good.append(record)
    nulls = {"", form.null_text}
    columns = [
        [None if (text := record.cells[place]) in nulls else text for record in good]
        for place in places
    ]
    return _file_rows(typed_columns(columns, desc), [record.line for record in good], bad, desc)


def _file_rows(
    typed: TypedColumns, lines: Sequence[int], bad: Sequence[BadRow], desc: RelationDesc
) -> FileRows:
    table = pa.Table.from_arrays(list(typed.arrays), schema=desc.arrow_schema())
    if typed.bad:
        table = table.take(
            pa.array([i for i in range(len(lines)) if i not in typed.bad], pa.int64())
        )
    wrong = [BadRow(lines[position], reason) for position, reason in typed.bad.items()]
    return FileRows(table, tuple(sorted((*bad, *wrong), key=lambda row: row.line)))


@dataclass(frozen=True, slots=True)
class TypedColumns:
    """Columns in their types. `bad` maps the positions of wrong rows to the reasons."""

    arrays: tuple[pa.Array, ...]
    bad: Mapping[int, str]


def typed_columns(columns: Sequence[Sequence[str | None]], desc: RelationDesc) -> TypedColumns:
    """The texts as the columns of `desc`, with the rules of Spark's CSV reader."""
    reasons: dict[int, str] = {}
    arrays: list[pa.Array] = []
    for name, texts, field in zip(desc.names, columns, desc.arrow_schema(), strict=True):
        converted = convert(pa.array(texts, pa.string()), field.type)
        for position, reason in converted.bad.items():
            reasons.setdefault(position, f"{reason} (column {name})")
        if not field.nullable:
            for position, text in enumerate(texts):
                if text is None:
                    reasons.setdefault(position, f"NULL in the column {name}")
        arrays.append(converted.values)
    return TypedColumns(tuple(arrays), reasons)


def decoded(data: bytes) -> str:
    """UTF-8 text, without a byte order mark. Raises UnreadableFileError."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UnreadableFileError(f"line {line} is not UTF-8 text") from None


def csv_records(text: str, delimiter: str) -> Iterator[Record]:
    """The records of a CSV text with the physical line on which each begins.

    A record that cannot be cut into cells ends at its line's end; an unclosed quote takes only the
    line on which it opens.
    """
    mark = re.escape(delimiter)
    quoted = re.compile(rf'"((?:[^"\\]|\\.|"")*)"(?={mark}|\r|\n|\Z)', re.DOTALL)
    plain = re.compile(rf"[^\r\n{mark}]*")
    ending = re.compile(r"\r\n|\n|\r")
    at, line, size = 0, 1, len(text)
    while at < size:
        blank = ending.match(text, at)
        if blank is not None:
            at, line = blank.end(), line + 1
            continue
        began, cells = line, list[str]()
        problem: str | None = None
        while True:
            if at < size and text[at] == '"':
                match = quoted.match(text, at)
                if match is None:
                    problem = "a quoted field is not closed, or text follows its closing quote"
                    break
                line += len(ending.findall(match[1]))
                cells.append(_unquoted(match[1]))
            else:
                match = plain.match(text, at)
                assert match is not None
                cells.append(match[0])
            at = match.end()
            if not text.startswith(delimiter, at):
                break
            at += len(delimiter)
        end = ending.search(text, at)
        at, line = (size, line) if end is None else (end.end(), line + 1)
        yield Record(began, cells, problem)


def _unquoted(text: str) -> str:
    if "\\" not in text:
        return text.replace('""', '"')
    return re.sub(r'\\(["\\])|""', lambda match: match[1] or '"', text)


_EXACT = json.JSONDecoder(parse_float=Decimal, parse_constant=str)


def json_objects(data: bytes) -> Iterator[tuple[int, Any]]:
    """Line number and decoded value of each line that is not blank; ValueError for bad lines."""
    for number, line in enumerate(decoded(data).split("\n"), 1):
        if not line.strip():
            continue
        yield number, json_object(line)


def json_object(text: str) -> dict[str, Any] | ValueError:
    """The value of the text, or why it is no object. Its numbers are exact."""
    try:
        value = _EXACT.decode(text)
    except (ValueError, RecursionError) as error:
        return ValueError(f"it is not JSON: {error}")
    return value if isinstance(value, dict) else ValueError("it is not a JSON object")


def json_columns(objects: Sequence[Mapping[str, Any]], desc: RelationDesc) -> TypedColumns:
    """The objects as the rows of `desc`: what is not named is left out, what is missing is NULL."""
    reasons: dict[int, str] = {}
    arrays: list[pa.Array] = []
    for name, field in zip(desc.names, desc.arrow_schema(), strict=True):
        cells = [each.get(name) for each in objects]
        converted = from_json_cells(cells, field.type)
        for position, reason in converted.bad.items():
            reasons.setdefault(position, f"{reason} (column {name})")
        if not field.nullable and None in cells:
            for position, cell in enumerate(cells):
                if cell is None:
                    reasons.setdefault(position, f"NULL in the column {name}")
        arrays.append(converted.values)
    return TypedColumns(tuple(arrays), reasons)


def _read_json(data: bytes, desc: RelationDesc) -> FileRows:
    objects: list[Mapping[str, Any]] = []
    lines: list[int] = []
    bad: list[BadRow] = []
    for line, value in json_objects(data):
        if isinstance(value, ValueError):
            bad.append(BadRow(line, str(value)))
        else:
            objects.append(value)
            lines.append(line)
    return _file_rows(json_columns(objects, desc), lines, bad, desc)


def _read_parquet(data: bytes, desc: RelationDesc) -> pa.Table:
    try:
        table = pq.read_table(io.BytesIO(data))
    except (pa.ArrowInvalid, OSError) as error:
        raise UnreadableFileError(f"it is not a Parquet file: {error}") from None
    folded = {name.lower(): place for place, name in enumerate(table.column_names)}
    arrays: list[Any] = []
    for name, field in zip(desc.names, desc.arrow_schema(), strict=True):
        place = folded.get(name.lower())
        if place is None and field.nullable:
            arrays.append(pa.nulls(len(table), field.type))
            continue
        if place is None:
            raise UnreadableFileError(f"it lacks the column {name}, which is NOT NULL")
        try:
            arrays.append(table.column(place).cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise UnreadableFileError(f"the column {name}: {error}") from None
        if not field.nullable and table.column(place).null_count:
            raise UnreadableFileError(f"NULL in the column {name}")
    return pa.Table.from_arrays(arrays, schema=desc.arrow_schema())
