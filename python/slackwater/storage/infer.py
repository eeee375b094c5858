"""The columns of a FILES source, inferred from the files that exist when it is created."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.repr.errors import user_error
from slackwater.repr.relation import Column, JsonType, RelationDesc
from slackwater.storage.discovery import FoundFile, find_files
from slackwater.storage.file_formats import (
    BadRow,
    Format,
    UnreadableFileError,
    csv_records,
    decoded,
    json_objects,
    plain_texts,
    unpacked,
)
from slackwater.storage.files_source import FilesConfig, bad_row, read_bytes
from slackwater.storage.text_values import convert

INFER_BYTES = 64 * 1024 * 1024
"""Inference looks at files up to this size together, and at least one."""

_CANDIDATES: tuple[tuple[str, pa.DataType], ...] = (
    ("boolean", pa.bool_()),
    ("long", pa.int64()),
    ("double", pa.float64()),
    ("date", pa.date32()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
)


def infer(config: FilesConfig, object_name: str) -> RelationDesc:
    """The columns that all files found now agree on.

    CSV: boolean, bigint, double, date, timestamp or string, the first that all values are. JSON:
    columns in the order of their names. Parquet: the first file's schema. Bad rows only
    count with ON ERROR STALL. Raises
    SLACKWATER_SOURCE_FILES_NOT_FOUND, SLACKWATER_SOURCE_FILE_UNREADABLE, SLACKWATER_SOURCE_BAD_ROW
    and SLACKWATER_UNSUPPORTED_TYPE.
    """
    files = sorted(
        find_files(config.path, config.pattern), key=lambda file: (file.modified_ns, file.path)
    )
    contents = list(_contents(files))
    if not contents:
        raise user_error(
            "SLACKWATER_SOURCE_FILES_NOT_FOUND", objectName=object_name, path=config.path
        )
    lenient = config.on_error != "STALL"
    columns: tuple[Column, ...]
    match config.format.kind:
        case "CSV":
            columns = _csv_columns(contents, config.format, lenient)
        case "JSON":
            columns = _json_columns(contents, lenient)
        case "PARQUET":
            columns = _parquet_columns(*contents[0])
    if not columns:
        raise user_error(
            "SLACKWATER_SOURCE_FILES_NOT_FOUND", objectName=object_name, path=config.path
        )
    desc = RelationDesc(columns)
    desc.arrow_schema()
    return desc


def _contents(files: list[FoundFile]) -> Iterable[tuple[str, bytes]]:
    size = 0
    for file in files:
        size += file.size_bytes
        data = read_bytes(file)
        if data:
            yield file.path, data
        if size > INFER_BYTES:
            return


def _text(path: str, data: bytes) -> bytes:
    return unpacked(data) if path.endswith(".gz") else data


def _unreadable(path: str, error: Exception) -> Exception:
    return user_error("SLACKWATER_SOURCE_FILE_UNREADABLE", file=path, reason=str(error))


def _csv_columns(
    contents: list[tuple[str, bytes]], form: Format, lenient: bool
) -> tuple[Column, ...]:
    """The columns of the first file that has any, with the kinds that all files give them."""
    columns: dict[str, set[str]] = {}
    for path, data in contents:
        try:
            text = _text(path, data)
            plain = plain_texts(text, form)
            found = (
                _careful_kinds(path, text, form, lenient)
                if plain is None
                else _plain_kinds(plain, form)
            )
        except UnreadableFileError as error:
            raise _unreadable(path, error) from None
        columns = columns or {name: set[str]() for name in found}
        for name, kind in found.items():
            if name in columns:
                columns[name] |= {kind} - {""}
    return tuple(Column(name, json.dumps(_widest(kinds))) for name, kinds in columns.items())


def _plain_kinds(texts: pa.Table, form: Format) -> dict[str, str]:
    names = texts.column_names if form.header else _positions(texts.num_columns)
    kinds = [_kind(column.combine_chunks()) for column in texts.columns]
    return dict(zip(names, kinds, strict=True))


def _careful_kinds(path: str, text: bytes, form: Format, lenient: bool) -> dict[str, str]:
    records = csv_records(decoded(text), form.delimiter)
    header = next(records, None) if form.header else None
    width = None if header is None else len(header.cells)
    rows: list[list[str]] = []
    for record in records:
        width = len(record.cells) if width is None else width
        problem = record.problem
        if problem is None and len(record.cells) != width:
            problem = f"{len(record.cells)} fields instead of {width}"
        if problem is None:
            rows.append(record.cells)
        elif not lenient:
            raise bad_row(path, BadRow(record.line, problem))
    names = _positions(width or 0) if header is None else header.cells
    return dict(zip(names, _kinds(rows, len(names), form), strict=True))


def _positions(count: int) -> list[str]:
    """Spark's names for the columns of a file without header."""
    return [f"_c{i}" for i in range(count)]


def _kinds(rows: list[list[str]], width: int, form: Format) -> list[str]:
    """For each column the narrowest kind, or "" when all is NULL."""
    nulls = {"", form.null_text}
    return [
        _kind(pa.array([None if row[i] in nulls else row[i] for row in rows], pa.string()))
        for i in range(width)
    ]


def _kind(texts: pa.Array) -> str:
    if texts.null_count == len(texts):
        return ""
    dates = pc.match_substring_regex(texts, r"^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}$")
    only_dates = bool(pc.all(dates).as_py())
    for name, kind in _CANDIDATES:
        if name == "date" and not only_dates:
            continue  # the cast would take a timestamp and drop its time
        sample = texts.drop_null().slice(0, 64)
        if not convert(sample, kind).bad and not convert(texts, kind).bad:
            return name
    return "string"


def _widest(kinds: set[str]) -> str:
    if len(kinds) == 1:
        return next(iter(kinds))
    if kinds == {"long", "double"}:
        return "double"
    if kinds == {"date", "timestamp"}:
        return "timestamp"
    return "string"


def _json_columns(contents: list[tuple[str, bytes]], lenient: bool) -> tuple[Column, ...]:
    merged: JsonType = {"type": "struct", "fields": []}
    for path, data in contents:
        try:
            for line, value in json_objects(_text(path, data)):
                if not isinstance(value, ValueError):
                    merged = _merge(merged, _json_type(value))
                elif not lenient:
                    raise bad_row(path, BadRow(line, str(value)))
        except UnreadableFileError as error:
            raise _unreadable(path, error) from None
    settled = _settle(merged)
    fields = [] if isinstance(settled, str) else settled["fields"]
    return tuple(Column(f["name"], json.dumps(f["type"], sort_keys=True)) for f in fields)


def _json_type(value: Any) -> JsonType:
    """The Spark type of a JSON value; "void" for null."""
    if value is None:
        return "void"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long" if -(2**63) <= value < 2**63 else "decimal(38,0)"
    if isinstance(value, Decimal):
        return "double"
    if isinstance(value, list):
        element: JsonType = "void"
        for item in value:
            element = _merge(element, _json_type(item))
        return {"type": "array", "elementType": element, "containsNull": True}
    if isinstance(value, dict):
        fields = [_field(name, _json_type(item)) for name, item in value.items()]
        return {"type": "struct", "fields": fields}
    return "string"


def _field(name: str, kind: JsonType) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _merge(left: JsonType, right: JsonType) -> JsonType:
    if left == right or right == "void":
        return left
    if left == "void":
        return right
    if isinstance(left, str) or isinstance(right, str):
        numbers = {"long", "double", "decimal(38,0)"}
        numeric = isinstance(left, str) and isinstance(right, str) and {left, right} <= numbers
        if not numeric:
            return "string"
        return "double" if "double" in (left, right) else "decimal(38,0)"
    if left["type"] != right["type"]:
        return "string"
    if left["type"] == "array":
        element = _merge(left["elementType"], right["elementType"])
        return {"type": "array", "elementType": element, "containsNull": True}
    fields = {f["name"]: f["type"] for f in left["fields"]}
    for f in right["fields"]:
        fields[f["name"]] = _merge(fields.get(f["name"], "void"), f["type"])
    return {"type": "struct", "fields": [_field(name, kind) for name, kind in fields.items()]}


def _settle(kind: JsonType) -> JsonType:
    """`kind` with STRING where only nulls were seen, and fields in the order of their names."""
    if isinstance(kind, str):
        return "string" if kind == "void" else kind
    if kind["type"] == "array":
        return {**kind, "elementType": _settle(kind["elementType"])}
    fields = [_field(f["name"], _settle(f["type"])) for f in kind["fields"]]
    return {"type": "struct", "fields": sorted(fields, key=lambda f: str(f["name"]))}


def _parquet_columns(path: str, data: bytes) -> tuple[Column, ...]:
    try:
        schema = pq.read_schema(io.BytesIO(data))
    except (pa.ArrowInvalid, OSError) as error:
        raise _unreadable(path, error) from None
    return tuple(
        Column(field.name, json.dumps(_spark_type(field.type), sort_keys=True)) for field in schema
    )


_SPARK_NAMES = {
    pa.bool_(): "boolean", pa.int8(): "byte", pa.int16(): "short", pa.int32(): "integer",
    pa.int64(): "long", pa.uint8(): "short", pa.uint16(): "integer", pa.uint32(): "long",
    pa.uint64(): "decimal(20,0)", pa.float32(): "float", pa.float64(): "double",
    pa.string(): "string", pa.large_string(): "string", pa.binary(): "binary",
    pa.large_binary(): "binary", pa.date32(): "date", pa.null(): "string",
}  # fmt: skip


def _spark_type(kind: pa.DataType) -> JsonType:
    if kind in _SPARK_NAMES:
        return _SPARK_NAMES[kind]
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_dictionary(kind):
        return _spark_type(kind.value_type)
    if pa.types.is_struct(kind):
        return {
            "type": "struct",
            "fields": [_field(field.name, _spark_type(field.type)) for field in kind],
        }
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {
            "type": "array",
            "elementType": _spark_type(kind.value_type),
            "containsNull": True,
        }
    if pa.types.is_map(kind):
        return {
            "type": "map",
            "keyType": _spark_type(kind.key_type),
            "valueType": _spark_type(kind.item_type),
            "valueContainsNull": True,
        }
    raise user_error("SLACKWATER_UNSUPPORTED_TYPE", typeName=str(kind).upper())
