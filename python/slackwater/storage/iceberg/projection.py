"""The rows of a data file as its table has them in one of its schemas: fields are found by ids.

A file keeps the names and types that its table had when it was written. Types only get wider. What
a file does not have is NULL, or the value of its partition.

Source: docs/decisions 0080.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from slackwater.storage.iceberg.columns import arrow_fields
from slackwater.storage.iceberg.schema import DECIMAL, FIELD_ID, PLAIN, Json

_TIME = pa.time64("us")


class Unreadable(Exception):
    """A file does not have the rows of its table, and why."""


@dataclass(frozen=True, slots=True)
class Projection:
    """The fields of a table's schema over files of a schema of their own.

    `file` is Arrow's schema of a file, with the ids of its fields; `constants` are the values of
    fields that the file does not have, by their ids.
    """

    fields: Sequence[Json]
    file: pa.Schema
    constants: Mapping[int, Any]

    @property
    def names(self) -> list[str]:
        """The columns of the file that are needed."""
        wanted = {each["id"] for each in self.fields}
        return [each.name for each in self.file if _id_of(each) in wanted]

    def rows(self, found: pa.Table) -> pa.Table:
        """Rows of the file, with the columns `names`, as the table has them.

        Raises `Unreadable`.
        """
        target = arrow_fields(self.fields)
        there = {_id_of(self.file.field(name)): name for name in found.column_names}
        columns = []
        for each, field in zip(self.fields, target, strict=True):
            name = there.get(each["id"])
            if name is None:
                columns.append(self._missing(each, field.type, found.num_rows))
                continue
            kind = self.file.field(name).type
            chunks = [
                self._converted(chunk, kind, each["type"], field.type)
                for chunk in found.column(name).chunks
            ]
            columns.append(pa.chunked_array(chunks, field.type))
        return pa.Table.from_arrays(columns, [each["name"] for each in self.fields])

    def _missing(self, field: Json, target: pa.DataType, count: int) -> pa.Array:
        value = self.constants.get(field["id"])
        if value is None:
            if field["required"]:
                raise Unreadable(f"it does not have the required column {field['name']}")
            return pa.nulls(count, target)
        kind = field["type"]
        (scalar,) = _plain(_constant(value, kind), kind, target)
        return pa.repeat(scalar, count)

    def _converted(
        self, values: pa.Array, file: pa.DataType, kind: Json | str, target: pa.DataType
    ) -> pa.Array:
        if isinstance(kind, str):
            return _plain(values, kind, target)
        match kind["type"]:
            case "struct":
                return self._struct(values, file, kind["fields"], target)
            case "list":
                within, offsets = _entries(values)
                inner = self._converted(
                    within(values.values), file.value_type, kind["element"], target.value_type
                )
                return pa.ListArray.from_arrays(offsets, inner, target, mask=values.is_null())
            case _:
                within, offsets = _entries(values)
                keys = self._converted(
                    within(values.keys), file.key_type, kind["key"], target.key_type
                )
                items = self._converted(
                    within(values.items), file.item_type, kind["value"], target.item_type
                )
                return pa.MapArray.from_arrays(offsets, keys, items, target, mask=values.is_null())

    def _struct(
        self, values: pa.Array, file: pa.DataType, fields: Sequence[Json], target: pa.DataType
    ) -> pa.Array:
        there = {_id_of(file.field(place)): place for place in range(file.num_fields)}
        wanted = [target.field(place) for place in range(target.num_fields)]
        if not fields:
            # A struct without fields has one for that, which is always NULL.
            children = [pa.nulls(len(values), each.type) for each in wanted]
        else:
            children = []
            for each, inner in zip(fields, wanted, strict=True):
                place = there.get(each["id"])
                if place is None:
                    # It may be within a struct that is NULL: so required ones are not told.
                    optional = {**each, "required": False}
                    children.append(self._missing(optional, inner.type, len(values)))
                    continue
                part = file.field(place).type
                children.append(
                    self._converted(values.field(place), part, each["type"], inner.type)
                )
        return pa.StructArray.from_arrays(children, fields=wanted, mask=values.is_null())


def with_ids(schema: pa.Schema, mapping: Sequence[Json] | None) -> pa.Schema:
    """The schema of a file with ids of fields; those of a file without come from a name mapping.

    Raises `Unreadable` when there are none.
    """
    if not len(schema) or any(_id_of(each) is not None for each in schema):
        return schema
    if mapping is None:
        raise Unreadable("its columns have no ids, and the table has no name mapping")
    return pa.schema(_mapped(schema, mapping))


def _mapped(fields: Iterable[pa.Field], mapping: Sequence[Json]) -> list[pa.Field]:
    known = {name: each for each in mapping for name in each["names"]}
    return [_numbered(each, known.get(each.name)) for each in fields]


def _numbered(field: pa.Field, found: Json | None) -> pa.Field:
    if found is None:
        return field
    inner = found.get("fields") or ()
    kind = field.type
    if pa.types.is_struct(kind):
        parts = [kind.field(place) for place in range(kind.num_fields)]
        kind = pa.struct(_mapped(parts, inner))
    elif pa.types.is_map(kind):
        known = {name: each for each in inner for name in each["names"]}
        kind = pa.map_(
            _numbered(kind.key_field, known.get("key")),
            _numbered(kind.item_field, known.get("value")),
        )
    elif pa.types.is_list(kind):
        known = {name: each for each in inner for name in each["names"]}
        kind = pa.list_(_numbered(kind.value_field, known.get("element")))
    if found.get("field-id") is None:
        return field.with_type(kind)
    return field.with_type(kind).with_metadata({FIELD_ID: str(found["field-id"]).encode()})


def _id_of(field: pa.Field) -> int | None:
    found = (field.metadata or {}).get(FIELD_ID)
    return None if found is None else int(found)


def _entries(values: pa.Array) -> tuple[Callable[[pa.Array], pa.Array], pa.Array]:
    """Gives what takes the part of the entries that lists or maps have, and offsets within it."""
    offsets = values.offsets.to_numpy()
    start, end = int(offsets[0]), int(offsets[-1])
    return lambda entries: entries.slice(start, end - start), pa.array(offsets - start, pa.int32())


def _plain(values: pa.Array, kind: str, target: pa.DataType) -> pa.Array:
    if kind == "uuid":
        stored = values.storage if isinstance(values, pa.ExtensionArray) else values
        texts = [
            None if each is None else str(uuid.UUID(bytes=each)) for each in stored.to_pylist()
        ]
        return pa.array(texts, target)
    if kind == "time":
        return values.cast(_TIME).cast(target)
    # Units of less than a microsecond are no values of the table.
    is_finer = pa.types.is_timestamp(values.type) and values.type.unit == "ns"
    return values if values.type == target else values.cast(target, safe=not is_finer)


def _constant(value: Any, kind: str) -> pa.Array:
    """The value of a partition, as a file would have it."""
    if kind == "uuid":
        return pa.array([value.bytes], pa.binary())
    if kind == "time":
        return pa.array([value], _TIME)
    if (decimal := DECIMAL.fullmatch(kind)) is not None:
        return pa.array([value], pa.decimal128(int(decimal[1]), int(decimal[2])))
    return pa.array([value], PLAIN.get(kind, pa.binary()))
