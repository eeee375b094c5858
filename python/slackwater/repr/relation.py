"""Relation descriptions: the columns of a collection in Spark's own schema notation.

Types are Spark's, kept as the JSON that `StructType.json` writes (so nested types, nullability
and char/varchar metadata survive), never translated into a type system of ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from slackwater.repr.errors import user_error

TIME_COLUMN = "__time"
DIFF_COLUMN = "__diff"
TIME_FIELD = pa.field(TIME_COLUMN, pa.int64(), False)
DIFF_FIELD = pa.field(DIFF_COLUMN, pa.int64(), False)

# Spark finds a column whatever the case of its name is; I with and without a dot are one letter.
_LIKE_OURS = re.compile(r"__(t[i\u0130\u0131]me|d[i\u0130\u0131]ff)'*", re.IGNORECASE)

EMPTY = "__empty"
"""The field that stands for none in a struct without fields."""

_COLLATIONS = "__COLLATIONS"
"""The key in a column's metadata under which Spark keeps the column's collations."""

JsonType = str | Mapping[str, Any]

_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_PADDED = re.compile(r"(?:char|varchar)\(\d+\)")
_PRIMITIVES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_SQL_NAMES: Mapping[str, str] = {
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INT",
    "long": "BIGINT",
}


def arrow_type(spark_type: JsonType) -> pa.DataType:
    """The Arrow type that carries a Spark type.

    `spark_type` is a type in Spark's JSON notation. Neither Arrow nor Parquet has a struct without
    fields, or one with two fields of one name, and readers find fields whatever their case is:
    there such a struct has the field `EMPTY`, which is always NULL, or names that end in their
    positions. The driver has the same rules (`values/Stored`).

    Raises SLACKWATER_UNSUPPORTED_TYPE for types that Parquet does not hold exactly (VARIANT,
    intervals, user-defined types, TIME, ...).
    """
    if isinstance(spark_type, str):
        if spark_type in _PRIMITIVES:
            return _PRIMITIVES[spark_type]
        if (decimal := _DECIMAL.fullmatch(spark_type)) is not None:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if spark_type.startswith("string") or _PADDED.fullmatch(spark_type):
            return pa.string()
        raise user_error("SLACKWATER_UNSUPPORTED_TYPE", typeName=spark_type.upper())
    match spark_type["type"]:
        case "struct":
            return pa.struct(_stored_fields(spark_type["fields"]))
        case "array":
            element = pa.field(
                "element", arrow_type(spark_type["elementType"]), bool(spark_type["containsNull"])
            )
            return pa.list_(element)
        case "map":
            value = pa.field(
                "value", arrow_type(spark_type["valueType"]), bool(spark_type["valueContainsNull"])
            )
            return pa.map_(arrow_type(spark_type["keyType"]), value)
        case other:
            raise user_error("SLACKWATER_UNSUPPORTED_TYPE", typeName=str(other).upper())


def _stored_fields(fields: Sequence[Mapping[str, Any]]) -> list[pa.Field]:
    if not fields:
        return [pa.field(EMPTY, pa.bool_())]
    names = stored_names([field["name"] for field in fields])
    return [
        pa.field(name, arrow_type(field["type"]), bool(field["nullable"]))
        for name, field in zip(names, fields, strict=True)
    ]


def stored_names(names: Sequence[str]) -> Sequence[str]:
    """The names that a struct's fields have in files and streams."""
    known = {name.lower() for name in names}
    if len(known) == len(names) and EMPTY not in known:
        return names
    return [f"{name}_{position}" for position, name in enumerate(names, 1)]


def stored_column(name: str) -> str:
    """The name that a user's column has in files and streams.

    No two columns have the same, and none has one of ours, which Spark finds whatever their case
    is: what can be taken for one of ours ends in one more ``'``. The driver has the same rule
    (`values/Stored`).
    """
    return f"{name}'" if _LIKE_OURS.fullmatch(name) else name


def unclear_field(path: str, spark_type: JsonType) -> str | None:
    """The path of a nested field that a reader cannot find by its name, if there is one."""
    if isinstance(spark_type, str):
        return None
    match spark_type["type"]:
        case "array":
            return unclear_field(f"{path}.element", spark_type["elementType"])
        case "map":
            return unclear_field(f"{path}.key", spark_type["keyType"]) or unclear_field(
                f"{path}.value", spark_type["valueType"]
            )
        case "struct":
            fields = spark_type["fields"]
            names = [field["name"] for field in fields]
            for stored, field in zip(stored_names(names), fields, strict=True):
                inner = f"{path}.{field['name']}"
                if stored != field["name"]:
                    return inner
                if (found := unclear_field(inner, field["type"])) is not None:
                    return found
    return None


def sql_type(spark_type: JsonType) -> str:
    """The type as it is written in SQL, e.g. ``ARRAY<BIGINT>``."""
    if isinstance(spark_type, str):
        return _SQL_NAMES.get(spark_type, spark_type.upper())
    match spark_type["type"]:
        case "struct":
            inner = ", ".join(
                f"{quote_identifier(f['name'])}: {sql_type(f['type'])}"
                for f in spark_type["fields"]
            )
            return f"STRUCT<{inner}>"
        case "array":
            return f"ARRAY<{sql_type(spark_type['elementType'])}>"
        case "map":
            return f"MAP<{sql_type(spark_type['keyType'])}, {sql_type(spark_type['valueType'])}>"
        case other:
            return str(other).upper()


def quote_identifier(name: str) -> str:
    """`name` as a quoted Spark identifier."""
    return "`" + name.replace("`", "``") + "`"


def quote_string(text: str) -> str:
    """`text` as a string literal of Spark's."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `type_json` is Spark's JSON for the type, as text; `metadata_json` likewise."""

    name: str
    type_json: str
    nullable: bool = True
    metadata_json: str = "{}"

    @property
    def stored_name(self) -> str:
        """The name of the column in files and streams."""
        return stored_column(self.name)

    @property
    def spark_type(self) -> JsonType:
        decoded: JsonType = json.loads(self.type_json)
        return decoded

    @property
    def sql_type(self) -> str:
        declared = json.loads(self.metadata_json).get("__CHAR_VARCHAR_TYPE_STRING")
        return str(declared).upper() if declared else sql_type(self.spark_type)

    def renamed(self, name: str) -> Column:
        """The column under another name: its collations stand in the metadata by paths of names."""
        metadata = json.loads(self.metadata_json)
        collations = metadata.get(_COLLATIONS)
        if collations:
            start = len(self.name)
            metadata[_COLLATIONS] = {name + path[start:]: c for path, c in collations.items()}
        return replace(self, name=name, metadata_json=json.dumps(metadata, sort_keys=True))

    @property
    def default_sql(self) -> str | None:
        """The DEFAULT expression of the column as SQL, if it has one."""
        value = json.loads(self.metadata_json).get("CURRENT_DEFAULT")
        return None if value is None else str(value)


def _column_field(column: Column) -> pa.Field:
    kind = column.spark_type
    if _COLLATIONS in column.metadata_json or _COLLATIONS in column.type_json:
        _refuse_padded(column.name, kind, json.loads(column.metadata_json))
    return pa.field(column.stored_name, arrow_type(kind), column.nullable)


def _refuse_padded(name: str, kind: JsonType, metadata: Mapping[str, Any]) -> None:
    """Refuses CHAR and VARCHAR with a collation: Spark writes such types and cannot read them.

    The collations of a field are in its metadata, by paths that begin with its name.
    """
    collations = metadata.get(_COLLATIONS) or {}

    def visit(path: str, inner: JsonType) -> None:
        if isinstance(inner, str):
            if path in collations and _PADDED.fullmatch(inner):
                collation = str(collations[path]).rpartition(".")[2]
                name_of_type = f"{inner.upper()} COLLATE {collation}"
                raise user_error("SLACKWATER_UNSUPPORTED_TYPE", typeName=name_of_type)
            return
        match inner["type"]:
            case "array":
                visit(f"{path}.element", inner["elementType"])
            case "map":
                visit(f"{path}.key", inner["keyType"])
                visit(f"{path}.value", inner["valueType"])
            case "struct":
                for field in inner["fields"]:
                    _refuse_padded(field["name"], field["type"], field.get("metadata") or {})

    visit(name, kind)


@dataclass(frozen=True, slots=True)
class RelationDesc:
    """The columns of a relation, in order."""

    columns: tuple[Column, ...]

    @staticmethod
    def from_json(schema_json: str) -> RelationDesc:
        """From the JSON of a Spark StructType."""
        fields: Sequence[Mapping[str, Any]] = json.loads(schema_json)["fields"]
        return RelationDesc(
            tuple(
                Column(
                    name=field["name"],
                    type_json=json.dumps(field["type"], sort_keys=True),
                    nullable=bool(field["nullable"]),
                    metadata_json=json.dumps(field.get("metadata") or {}, sort_keys=True),
                )
                for field in fields
            )
        )

    @staticmethod
    def of(**columns: str) -> RelationDesc:
        """From names and Spark JSON type names, e.g. ``RelationDesc.of(k="integer")``."""
        return RelationDesc(tuple(Column(name, json.dumps(kind)) for name, kind in columns.items()))

    def to_json(self) -> str:
        """The JSON of the Spark StructType."""
        fields = [
            {
                "name": column.name,
                "type": column.spark_type,
                "nullable": column.nullable,
                "metadata": json.loads(column.metadata_json),
            }
            for column in self.columns
        ]
        return json.dumps({"type": "struct", "fields": fields})

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def stored_names(self) -> tuple[str, ...]:
        """The names that the columns have in files and streams."""
        return tuple(column.stored_name for column in self.columns)

    def only(self, names: Collection[str]) -> RelationDesc:
        """Without the columns that are not among these."""
        return RelationDesc(tuple(column for column in self.columns if column.name in names))

    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of the relation's rows, without time and diff, under their stored names.

        Raises SLACKWATER_UNSUPPORTED_TYPE.
        """
        return pa.schema([_column_field(column) for column in self.columns])

    def update_schema(self) -> pa.Schema:
        """The Arrow schema of the relation's updates: the columns, ``__time``, ``__diff``."""
        return pa.schema([*self.arrow_schema(), TIME_FIELD, DIFF_FIELD])

    def with_diffs(self, rows: Iterable[tuple[Sequence[Any], int]]) -> pa.Table:
        """Rows, each with its diff, as a table of the columns and ``__diff``."""
        schema = self.arrow_schema().append(DIFF_FIELD)
        columns = list(zip(*((*row, diff) for row, diff in rows), strict=True))
        arrays = zip(columns or [()] * len(schema), schema, strict=True)
        return pa.Table.from_arrays([pa.array(c, f.type) for c, f in arrays], schema=schema)


def with_diff(rows: pa.Table, diff: int = 1) -> pa.Table:
    """The rows with the same ``__diff`` each."""
    return rows.append_column(DIFF_FIELD, pa.repeat(pa.scalar(diff, pa.int64()), rows.num_rows))


def updates_at(rows: pa.Table, time: int, diff: int = 1) -> pa.Table:
    """The rows as updates at `time`, with the same ``__diff`` each."""
    times = pa.repeat(pa.scalar(int(time), pa.int64()), rows.num_rows)
    return with_diff(rows.append_column(TIME_FIELD, times), diff)
