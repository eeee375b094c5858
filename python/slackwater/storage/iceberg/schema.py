"""The schema of an Iceberg table, in the JSON of Iceberg's specification, and Arrow's beside it.

Iceberg finds columns by the ids of their fields, never by their names. So a file of ours has the
ids that the table's schema gives.

Source: docs/decisions 0077.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from slackwater.repr.errors import FatalError, invalid_option, user_error
from slackwater.repr.relation import RelationDesc, unclear_field
from slackwater.storage.lake.config import (
    DEFAULT_COMPACT_EVERY,
    DIFF_NAME,
    TIMESTAMP_NAME,
    DeletesBy,
    IcebergPlace,
    LakeSinkConfig,
)

FIELD_ID = b"PARQUET:field_id"
"""The name under which Arrow keeps the id of a field for Parquet."""

Json = Mapping[str, Any]

DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
PLAIN: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}
_NAMES = {kind: name for name, kind in PLAIN.items()} | {pa.int8(): "int", pa.int16(): "int"}
_WIDER = {("int", "long"), ("float", "double")}


class Misfit(Exception):
    """The columns do not fit a table, and why."""


@dataclass(slots=True)
class _Ids:
    """The ids of fields, from 1 on."""

    last: int = 0

    def next(self) -> int:
        self.last += 1
        return self.last


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of a Parquet file: the id of its field, and its Iceberg type; without one it gets
    no bounds.

    `is_repeated`: a row may have several values of it, or none.
    """

    field_id: int
    type: str
    is_repeated: bool


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """The table of a sink as its definition has it: the parts of its namespace and its name, the
    columns of its rows, and those of its key, by which rows go as `deletes` says. After
    `compact_every` commits it is compacted. `shown` is the table in messages."""

    identifier: tuple[str, ...]
    shown: str
    schema: pa.Schema
    key: tuple[str, ...] = ()
    deletes: DeletesBy = "equality"
    compact_every: int = DEFAULT_COMPACT_EVERY


def sink_columns(config: LakeSinkConfig, desc: RelationDesc) -> SinkColumns:
    """The table of a sink over a relation with these columns.

    Raises SLACKWATER_UNSUPPORTED_TYPE, SLACKWATER_COLUMN_MISMATCH for fields within a column whose
    names cannot be kept, and SLACKWATER_INVALID_OPTION for an empty name.
    """
    place = config.place
    if not isinstance(place, IcebergPlace):
        raise FatalError(f"{place.shown} is none of Iceberg")
    identifier = table_identifier(place, "CREATE SINK")
    fields = []
    for column, field in zip(desc.columns, desc.arrow_schema(), strict=True):
        if (unclear := unclear_field(column.name, column.spark_type)) is not None:
            reason = f"{unclear} cannot be found by its name"
            raise user_error("SLACKWATER_COLUMN_MISMATCH", objectName=place.shown, details=reason)
        fields.append(field.with_name(column.name))
    if config.mode == "APPEND":
        fields += [pa.field(DIFF_NAME, pa.int32()), pa.field(TIMESTAMP_NAME, pa.int64())]
    return SinkColumns(
        identifier, place.shown, pa.schema(fields), config.key, config.deletes, config.compact_every
    )


def table_identifier(place: IcebergPlace, statement: str) -> tuple[str, ...]:
    """The parts of a table's namespace, and its name.

    Raises SLACKWATER_INVALID_OPTION for an empty one.
    """
    identifier = (*place.namespace.split("."), place.table)
    for part in identifier:
        if not part:
            option = "TABLE" if not place.table else "NAMESPACE"
            raise invalid_option(option, statement, repr(part), "a part of it is empty")
    return identifier


@dataclass(frozen=True, slots=True)
class Fit:
    """The columns of rows as a table has them: Arrow's schema with the ids of fields."""

    schema: pa.Schema

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The columns of a file with these columns, in their order."""
        return tuple(leaf for each in self.schema for leaf in _leaves(each))

    def ids(self, names: Sequence[str]) -> list[int]:
        """The ids of columns."""
        return [_id_of(self.schema.field(name)) for name in names]

    def of(self, names: Sequence[str]) -> Fit:
        """The fit of some of the columns."""
        return Fit(pa.schema([self.schema.field(name) for name in names]))


def new_schema(columns: pa.Schema, key: Sequence[str] = ()) -> dict[str, Any]:
    """The schema of a new table with these columns.

    The columns of a key are its identifier fields if all of them are NOT NULL, which Iceberg asks
    of such fields. All others may be NULL: the sink may go on with another relation. Raises
    SLACKWATER_UNSUPPORTED_TYPE, and `Misfit` for names that are the same as paths.
    """
    _check_paths(columns)
    fields = _new_fields(columns, _Ids())
    schema: dict[str, Any] = {"type": "struct", "schema-id": 0, "fields": fields}
    if key and not any(columns.field(name).nullable for name in key):
        keys = [each for each in fields if each["name"] in key]
        for each in keys:
            each["required"] = True
        schema["identifier-field-ids"] = [each["id"] for each in keys]
    return schema


def fitted(columns: pa.Schema, table: Json) -> Fit:
    """The columns as the table with that schema has them.

    Types may be wider there, and the table may have more columns, which have to be nullable. Raises
    `Misfit`.
    """
    return Fit(pa.schema(_fitted_fields("", list(columns), table["fields"])))


def with_added(columns: pa.Schema, table: Json, others: Sequence[Json], last_id: int) -> Json:
    """The table's schema with those of the columns that it does not have, as optional ones.

    It is the schema itself when nothing has to be added. `others` are all schemas that the table
    has or had, and `last_id` is the last id that it has given to a field. Raises `Misfit` for a
    column that was removed from the table: old rows have lost what it had.
    """
    known = {each["name"] for each in table["fields"]}
    added = [each for each in columns if each.name not in known]
    if not added:
        return table
    former = {each["name"] for schema in others for each in schema["fields"]}
    for each in added:
        if each.name in former:
            raise Misfit(f"it has no column {each.name} any more")
    _check_paths(columns)
    return {
        **table,
        "schema-id": max(each["schema-id"] for each in others) + 1,
        "fields": [*table["fields"], *_new_fields(added, _Ids(last_id))],
    }


def _new_fields(fields: Sequence[pa.Field] | pa.Schema, ids: _Ids) -> list[dict[str, Any]]:
    numbers = [ids.next() for _ in fields]
    return [
        {
            "id": number,
            "name": each.name,
            "required": False,
            "type": _new_type(each.type, ids),
        }
        for number, each in zip(numbers, fields, strict=True)
    ]


def _check_paths(columns: pa.Schema) -> None:
    """Iceberg knows fields by their paths, too: a column `a.b`, and `b` within `a`."""
    known: set[str] = set()
    for path in (path for each in columns for path in _paths(each.name, each.type)):
        if path in known:
            raise Misfit(f"two of its columns have the path {path}")
        known.add(path)


def _paths(path: str, kind: pa.DataType) -> Iterator[str]:
    yield path
    if pa.types.is_nested(kind):
        for each in _inner(kind):
            yield from _paths(f"{path}.{each.name}", each.type)


def _new_type(kind: pa.DataType, ids: _Ids) -> str | dict[str, Any]:
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": _new_fields(_inner(kind), ids)}
    if pa.types.is_map(kind):
        key, value = ids.next(), ids.next()
        return {
            "type": "map",
            "key-id": key,
            "key": _new_type(kind.key_type, ids),
            "value-id": value,
            "value": _new_type(kind.item_type, ids),
            "value-required": False,
        }
    if pa.types.is_list(kind):
        return {
            "type": "list",
            "element-id": ids.next(),
            "element": _new_type(kind.value_type, ids),
            "element-required": False,
        }
    return _plain(kind)


def _plain(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        if kind.scale >= 0:
            return f"decimal({kind.precision}, {kind.scale})"
    elif kind in _NAMES:
        return _NAMES[kind]
    raise user_error("SLACKWATER_UNSUPPORTED_TYPE", typeName=str(kind).upper())


def _inner(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(position) for position in range(kind.num_fields)]


def _fitted_fields(
    within: str, fields: Sequence[pa.Field], table: Sequence[Json]
) -> list[pa.Field]:
    known = {each["name"]: each for each in table}
    named = {each.name for each in fields}
    for name, each in known.items():
        if each["required"] and name not in named:
            raise Misfit(f"its column {within}{name} is required, and there is no such column here")
    found = []
    for each in fields:
        there = known.get(each.name)
        if there is None:
            raise Misfit(f"it has no column {within}{each.name}")
        if each.nullable and there["required"]:
            raise Misfit(f"its column {within}{each.name} is required, and may be NULL here")
        kind = _fitted_type(f"{within}{each.name}", each.type, there["type"])
        found.append(_numbered(each.name, kind, not there["required"], there["id"]))
    return found


def _fitted_type(path: str, kind: pa.DataType, table: Json | str) -> pa.DataType:
    if isinstance(table, str):
        return _fitted_plain(path, kind, table)
    match table["type"]:
        case "struct" if pa.types.is_struct(kind):
            return pa.struct(_fitted_fields(f"{path}.", _inner(kind), table["fields"]))
        case "list" if pa.types.is_list(kind):
            return pa.list_(
                _part(path, "element", kind.value_field, table, not table["element-required"])
            )
        case "map" if pa.types.is_map(kind):
            return pa.map_(
                _part(path, "key", kind.key_field, table, False),
                _part(path, "value", kind.item_field, table, not table["value-required"]),
            )
        case other:
            raise Misfit(f"its column {path} has the type {other}, and is {kind} here")


def _part(path: str, name: str, each: pa.Field, table: Json, nullable: bool) -> pa.Field:
    if each.nullable and not nullable:
        raise Misfit(f"the {name} of its column {path} is required, and may be NULL here")
    kind = _fitted_type(f"{path}.{name}", each.type, table[name])
    return _numbered(name, kind, nullable, table[f"{name}-id"])


def _fitted_plain(path: str, kind: pa.DataType, table: str) -> pa.DataType:
    if pa.types.is_nested(kind):
        raise Misfit(f"its column {path} has the type {table}, and is {kind} here")
    ours = _plain(kind)
    decimal = DECIMAL.fullmatch(table)
    if decimal is not None and pa.types.is_decimal(kind):
        precision, scale = int(decimal[1]), int(decimal[2])
        if scale == kind.scale and precision >= kind.precision:
            return pa.decimal128(precision, scale)
    elif ours == table or (ours, table) in _WIDER:
        return PLAIN[table]
    raise Misfit(f"its column {path} has the type {table}, and is {ours} here")


def _numbered(name: str, kind: pa.DataType, nullable: bool, number: int) -> pa.Field:
    return pa.field(name, kind, nullable, metadata={FIELD_ID: str(number).encode()})


def _id_of(each: pa.Field) -> int:
    return int(each.metadata[FIELD_ID])


def file_leaves(schema: pa.Schema) -> tuple[Leaf, ...]:
    """The columns of a file of anybody's with these columns, which have the ids of their fields.

    Raises `Misfit` when they have none.
    """
    try:
        return tuple(leaf for each in schema for leaf in _leaves(each))
    except (KeyError, TypeError):
        raise Misfit("some of its columns have no ids") from None


def _leaves(each: pa.Field, is_repeated: bool = False) -> Iterator[Leaf]:
    """The leaves of a column, in the order of a file's columns."""
    kind = each.type
    if pa.types.is_struct(kind):
        for inner in _inner(kind):
            yield from _leaves(inner, is_repeated)
    elif pa.types.is_map(kind):
        yield from _leaves(kind.key_field, True)
        yield from _leaves(kind.item_field, True)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaves(kind.value_field, True)
    else:
        yield Leaf(_id_of(each), _leaf_type(kind), is_repeated)


def _leaf_type(kind: pa.DataType) -> str:
    """The Iceberg type of a column of a file; empty: one that no table of ours has."""
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return "string" if pa.types.is_large_string(kind) else "binary"
    return _plain(kind) if pa.types.is_decimal(kind) or kind in _NAMES else ""
