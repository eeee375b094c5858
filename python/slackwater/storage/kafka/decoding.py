"""Messages of a topic as rows: keys and values by their formats, and what else is included.

What cannot be read is told with its reason, by the number of the message; nothing is raised for it.

Source: surface 4; docs/decisions 0069.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from slackwater.planner.parser.kafka_source import Decoding, Included, Payload
from slackwater.repr.relation import RelationDesc
from slackwater.storage.file_formats import csv_records, json_columns, json_object, typed_columns
from slackwater.storage.kafka.columns import SourceColumns
from slackwater.storage.kafka.debezium import (
    change_in_json,
    change_in_protobuf,
    change_of,
    key_in_json,
)
from slackwater.storage.kafka.protobuf import ProtobufShape
from slackwater.storage.kafka.shapes import MessageReader, MessageReaders, Shape
from slackwater.storage.kafka.topic import Messages
from slackwater.storage.row_bytes import row_keys

_NOT_UTF8 = "it is not UTF-8 text"


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of messages, in their order, and what is none.

    `places` has the number of the message of each row. For rows by key, `keys` has the digest of
    the key of each message, which means nothing of those whose key is NULL or cannot be read;
    `deletes` and `truncates` are messages that take rows away: that of their key, or all.
    `bad_keys` and `bad_values` have the reasons by the numbers of messages; with a column for
    errors of values there are rows for these.
    """

    rows: pa.Table
    places: Sequence[int]
    bad_keys: Mapping[int, str] = field(default_factory=dict)
    bad_values: Mapping[int, str] = field(default_factory=dict)
    keys: Sequence[bytes] = ()
    deletes: Sequence[int] = ()
    truncates: Sequence[int] = ()


class Decoder:
    """Decodes the messages of one source."""

    def __init__(
        self, decoding: Decoding, columns: SourceColumns, readers: MessageReaders | None = None
    ) -> None:
        """`readers` are there where keys or values have a schema."""
        self._decoding = decoding
        self._readers = readers or MessageReaders()
        self._columns = columns
        self._schema = columns.desc.arrow_schema()

    def rows(self, messages: Messages) -> Decoded:
        """The rows of all messages, but of those by key that take rows away.

        A key that is NULL is NULL in the row; what is missing is for the envelope to say. Raises
        SLACKWATER_REGISTRY_UNREACHABLE.
        """
        keys = self._keys(messages.keys)
        by_key = self._decoding.is_by_key
        # Without a value, a key has no row: there is nothing to decode.
        texts = [
            None if value is None or place in keys.bad else value
            for place, value in enumerate(messages.values)
        ]
        values = self._values(texts)
        metadata = [_metadata(each, messages) for each, _ in self._columns.metadata]
        bad = dict(values.bad)
        for part in metadata:
            for place, reason in part.bad.items():
                bad.setdefault(place, reason)
        inline = self._columns.error is not None
        empty = [n for n, value in enumerate(messages.values) if value is None] if by_key else []
        deletes = [*empty, *values.deletes]
        left_out = {*keys.bad, *deletes, *values.truncates}
        for place in left_out:
            bad.pop(place, None)
        if not inline:
            left_out.update(bad)
        places = [place for place in range(len(messages)) if place not in left_out]
        arrays = [*keys.arrays, *values.arrays]
        if inline:
            arrays = [*keys.arrays, *_without(values.arrays, values.bad)]
            errors = [{"description": bad[n]} if n in bad else None for n in range(len(messages))]
            arrays.append(pa.array(errors, self._schema.field(len(arrays)).type))
        arrays += [part.arrays[0] for part in metadata]
        if len(places) < len(messages):
            chosen = pa.array(places, pa.int64())
            arrays = [array.take(chosen) for array in arrays]
        rows = pa.Table.from_arrays(arrays, schema=self._schema)
        digests = self._digests(keys) if by_key else ()
        deletes = [place for place in deletes if place not in keys.bad]
        return Decoded(rows, places, keys.bad, bad, digests, deletes, values.truncates)

    def key_of(self, raw: bytes) -> bytes:
        """The digest of the key of a message. Raises ValueError if it cannot be read, and
        SLACKWATER_REGISTRY_UNREACHABLE."""
        keys = self._keys([raw])
        if keys.bad:
            raise ValueError(keys.bad[0])
        return self._digests(keys)[0]

    @staticmethod
    def _digests(keys: _Cells) -> list[bytes]:
        names = [str(place) for place in range(len(keys.arrays))]
        return row_keys(pa.table(list(keys.arrays), names))

    def _keys(self, found: Sequence[bytes | None]) -> _Cells:
        payload = self._decoding.key_format
        if payload is None or not self._columns.key.columns:
            return _Cells(())
        shape, reader = self._columns.key_shape, self._readers.key
        if shape is not None and reader is not None:
            return _read(shape, reader, self._columns.key, found)
        return _whole(payload, found, without_schema=self._decoding.envelope == "DEBEZIUM")

    def _values(self, found: Sequence[bytes | None]) -> _Cells:
        """The columns of the values; all are NULL where there is none."""
        payload, declared = self._decoding.value, self._columns.declared
        shape, reader = self._columns.value_shape, self._readers.value
        if self._decoding.envelope == "DEBEZIUM":
            return self._changed(found)
        if shape is not None and reader is not None:
            return _read(shape, reader, self._columns.value, found)
        if payload.kind == "CSV":
            return _csv(payload, declared or self._columns.value, found)
        return _whole(payload, found) if declared is None else _json_columns(declared, found)

    def _changed(self, found: Sequence[bytes | None]) -> _Cells:
        """The columns of the rows in messages of Debezium."""
        reader = self._readers.value
        rows: dict[int, Any] = {}
        bad: dict[int, str] = {}
        others: dict[str, list[int]] = {"delete": [], "truncate": []}
        for place, raw in enumerate(found):
            if raw is None:
                continue
            try:
                if reader is not None:
                    is_protobuf = isinstance(self._columns.value_shape, ProtobufShape)
                    of = change_in_protobuf if is_protobuf else change_of
                    change = of(reader.value(raw))
                else:
                    change = change_in_json(_decoded(raw))
            except ValueError as error:
                bad[place] = str(error)
                continue
            if change.row is None:
                others[change.kind].append(place)
            else:
                rows[place] = change.row
        shape, value = self._columns.value_shape, self._columns.value
        if shape is not None:
            cells = _shaped(shape, value, rows, bad, len(found))
        else:
            typed = json_columns([rows.get(place, {}) for place in range(len(found))], value)
            cells = typed.arrays
            bad.update((place, reason) for place, reason in typed.bad.items() if place in rows)
        return _Cells(cells, bad, others["delete"], others["truncate"])


@dataclass(frozen=True, slots=True)
class _Cells:
    """Columns with a value for each message; those of messages that are none mean nothing."""

    arrays: Sequence[pa.Array]
    bad: Mapping[int, str] = field(default_factory=dict)
    deletes: Sequence[int] = ()
    truncates: Sequence[int] = ()


def _without(arrays: Sequence[pa.Array], bad: Mapping[int, str]) -> Sequence[pa.Array]:
    """The columns with NULL in place of what means nothing."""
    if not bad or not arrays:
        return arrays
    kept = pa.array([None if n in bad else n for n in range(len(arrays[0]))], pa.int64())
    return [each.take(kept) for each in arrays]


def _whole(
    payload: Payload, found: Sequence[bytes | None], *, without_schema: bool = False
) -> _Cells:
    """One column with the whole key or value, in JSON maybe without the schema beside it."""
    if payload.kind == "BYTES":
        return _Cells((pa.array(found, pa.binary()),))
    texts, bad = _texts(found)
    if payload.kind == "JSON":
        for place, text in enumerate(texts):
            if text is not None and (reason := _no_json(text)) is not None:
                bad[place] = reason
        if without_schema:
            texts = [None if text is None else key_in_json(text) for text in texts]
    return _Cells((pa.array(texts, pa.string()),), bad)


def _read(
    shape: Shape, reader: MessageReader, desc: RelationDesc, found: Sequence[bytes | None]
) -> _Cells:
    """The columns of values that have a schema."""
    values: dict[int, Any] = {}
    bad: dict[int, str] = {}
    for place, raw in enumerate(found):
        if raw is not None:
            try:
                values[place] = reader.value(raw)
            except ValueError as error:
                bad[place] = str(error)
    return _Cells(_shaped(shape, desc, values, bad, len(found)), bad)


def _shaped(
    shape: Shape,
    desc: RelationDesc,
    values: Mapping[int, Any],
    bad: dict[int, str],
    count: int,
) -> Sequence[pa.Array]:
    """The columns of `count` messages, of which some have values; those that do not fit are added
    to `bad`."""
    schema = desc.arrow_schema()
    rows: list[Sequence[Any]] = [[None] * len(schema)] * count
    for place, value in values.items():
        try:
            rows[place] = shape.cells(value)
        except ValueError as error:
            bad[place] = str(error)
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


_SYNTAX = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant)


def _no_json(text: str) -> str | None:
    """Why the text is not one JSON value; None: it is one."""
    try:
        _SYNTAX.decode(text)
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"
    return None


def _json_columns(declared: RelationDesc, found: Sequence[bytes | None]) -> _Cells:
    """The columns of objects, by the rules of files with JSON lines."""
    texts, bad = _texts(found)
    nothing: dict[str, Any] = {}
    objects = [nothing] * len(texts)
    for place, text in enumerate(texts):
        if text is not None:
            value = json_object(text)
            if isinstance(value, ValueError):
                bad[place] = str(value)
            else:
                objects[place] = value
    typed = json_columns(objects, declared)
    for place, reason in typed.bad.items():
        if found[place] is not None:
            bad.setdefault(place, reason)
    return _Cells(typed.arrays, _also_missing(bad, declared, found))


def _csv(payload: Payload, desc: RelationDesc, found: Sequence[bytes | None]) -> _Cells:
    """The columns of values that are one record of CSV each."""
    width = len(desc.columns)
    texts, bad = _texts(found)
    empty: list[str | None] = [None] * width
    rows: list[Sequence[str | None]] = []
    for place, text in enumerate(texts):
        rows.append(empty)
        if text is None:
            continue
        records = list(csv_records(text, payload.delimiter))
        problem = next((each.problem for each in records if each.problem), None)
        if problem is not None:
            bad[place] = problem
        elif len(records) != 1:
            bad[place] = f"{len(records)} records instead of one"
        elif len(records[0].cells) != width:
            bad[place] = f"{len(records[0].cells)} fields instead of {width}"
        else:
            rows[-1] = [cell or None for cell in records[0].cells]
    columns = list(zip(*rows, strict=True)) or [()] * width
    typed = typed_columns(columns, desc)
    for place, reason in typed.bad.items():
        if found[place] is not None:
            bad.setdefault(place, reason)
    return _Cells(typed.arrays, _also_missing(bad, desc, found))


def _also_missing(
    bad: Mapping[int, str], desc: RelationDesc, found: Sequence[bytes | None]
) -> Mapping[int, str]:
    """Also those without a value, if there is a column that cannot be NULL."""
    needed = next((column.name for column in desc.columns if not column.nullable), None)
    if needed is None or None not in found:
        return bad
    missing = [place for place, value in enumerate(found) if value is None]
    return {**dict.fromkeys(missing, f"NULL in the column {needed}"), **bad}


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError(_NOT_UTF8) from None


def _texts(found: Sequence[bytes | None]) -> tuple[list[str | None], dict[int, str]]:
    try:
        return [None if each is None else each.decode() for each in found], {}
    except UnicodeDecodeError:
        pass
    texts: list[str | None] = []
    bad: dict[int, str] = {}
    for place, each in enumerate(found):
        try:
            texts.append(None if each is None else each.decode())
        except UnicodeDecodeError:
            texts.append(None)
            bad[place] = _NOT_UTF8
    return texts, bad


def _metadata(each: Included, messages: Messages) -> _Cells:
    match each.what:
        case "PARTITION":
            return _Cells((pa.array(messages.partitions, pa.int32()),))
        case "OFFSET":
            return _Cells((pa.array(messages.offsets, pa.int64()),))
        case "TIMESTAMP":
            milliseconds = pa.array(messages.sent_ms, pa.timestamp("ms", tz="UTC"))
            return _Cells((milliseconds.cast(pa.timestamp("us", tz="UTC")),))
        case "HEADERS":
            entry = pa.struct(
                [pa.field("key", pa.string(), False), pa.field("value", pa.binary(), True)]
            )
            kind = pa.list_(pa.field("element", entry, False))
            listed = [[{"key": k, "value": v} for k, v in found] for found in messages.headers]
            return _Cells((pa.array(listed, kind),))
        case _:
            # Of headers with one name the last counts, as a later one replaces an earlier one.
            found = [dict(headers).get(each.header or "") for headers in messages.headers]
            if each.is_bytes:
                return _Cells((pa.array(found, pa.binary()),))
            texts, bad = _texts(found)
            told = dict.fromkeys(bad, f"its header '{each.header}' is not UTF-8 text")
            return _Cells((pa.array(texts, pa.string()),), told)
