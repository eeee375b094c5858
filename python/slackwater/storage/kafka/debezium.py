"""Messages of Debezium: what has happened to a row of a table, and the row after that.

A message is a record, an object, or a message of Protobuf, with the fields `op` and `after`. JSON
may have it as `payload` beside its `schema`, in keys as in values.

Source: Debezium's documentation of its events; docs/decisions 0074.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from slackwater.storage.file_formats import json_object
from slackwater.storage.kafka.avro import AvroShape, avro_shape, unreadable
from slackwater.storage.kafka.avro_meaning import full_name
from slackwater.storage.text_values import json_text

_NAMED = ("record", "error", "enum", "fixed")
_WITH_ROW = ("c", "u", "r")
_WRAPPED = {"schema", "payload"}


@dataclass(frozen=True, slots=True)
class Change:
    """A message says that its key has that row, or none any more, or that the table is empty."""

    kind: Literal["upsert", "delete", "truncate"]
    row: Any = None


def change_of(value: Mapping[str, Any]) -> Change:
    """The change that a message is. Without `op` the row decides. Raises ValueError."""
    op, row = value.get("op"), value.get("after")
    if op == "t":
        return Change("truncate")
    if op == "d":
        return Change("delete")
    if op is not None and op not in _WITH_ROW:
        raise ValueError(f"its op is {json.dumps(op, default=str)[:60]}")
    if op is None and "after" not in value:
        raise ValueError("it has neither op nor after, as messages of Debezium have")
    if row is None:
        if op is None:
            return Change("delete")
        raise ValueError(f'its op is "{op}", and it has no row after it')
    return Change("upsert", row)


def change_in_protobuf(message: Any) -> Change:
    """The change that a message of Protobuf is. Raises ValueError."""
    fields = message.DESCRIPTOR.fields_by_name
    found = {"after": message.after if message.HasField("after") else None}
    op = fields.get("op")
    if op is not None and (not op.has_presence or message.HasField("op")):
        found["op"] = message.op if op.message_type is None else message.op.value
    return change_of(found)


def change_in_json(text: str) -> Change:
    """The change that a message in JSON is. Raises ValueError."""
    value = json_object(text)
    if isinstance(value, ValueError):
        raise value
    if value.keys() == _WRAPPED:
        value = value["payload"]
        if value is None:
            return Change("delete")
        if not isinstance(value, dict):
            raise ValueError("its payload is not a JSON object")
    change = change_of(value)
    if change.row is not None and not isinstance(change.row, dict):
        raise ValueError("its row is not a JSON object")
    return change


def key_in_json(text: str) -> str:
    """The text of a key without its schema; one that has none stays as it is."""
    value = json_object(text)
    if isinstance(value, ValueError) or value.keys() != _WRAPPED:
        return text
    if not isinstance(value["schema"], dict | None):
        return text
    return json_text(value["payload"])


def narrowed(schema: str) -> str:
    """The schema of messages with nothing but `op` and `after`: others of their fields, such as
    those of their source, may change as they like. It is the same when it is narrowed again.

    Raises SLACKWATER_AVRO_SCHEMA.
    """
    top, namespace = _record(json.loads(schema), "", "a message")
    names = _Names()
    names.collect(top, namespace)
    full = full_name(top["name"], top.get("namespace"), namespace)
    space = full.rpartition(".")[0]
    found = {each.get("name"): each for each in top.get("fields", ())}
    if "after" not in found:
        raise unreadable("values", "the record has no field after, as messages of Debezium have")
    seen: set[str] = set()
    fields = [
        {**found[name], "type": names.whole(found[name]["type"], space, seen)}
        for name in ("op", "after")
        if name in found
    ]
    return json.dumps({"type": "record", "name": full, "fields": fields})


def row_shape(schema: str) -> AvroShape:
    """The columns of the rows in messages of that schema; its own `schema` is that of messages.

    Raises SLACKWATER_AVRO_SCHEMA.
    """
    top = json.loads(narrowed(schema))
    *op, after = top["fields"]
    row, _ = _record(after["type"], "", "the field after")
    shape = avro_shape(json.dumps(row), is_key=False)
    after |= {"type": ["null", json.loads(shape.schema)], "default": None}
    return replace(shape, schema=json.dumps({**top, "fields": [*op, after]}))


def _record(schema: Any, namespace: str, what: str) -> tuple[Mapping[str, Any], str]:
    """The record that a schema is, maybe beside null, and the namespace in which it is."""
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        schema = others[0] if len(others) == 1 else None
    match schema:
        case {"type": (dict() | list()) as inner}:
            return _record(inner, namespace, what)
        case {"type": "record", "name": str(), "fields": list()}:
            return schema, namespace
        case _:
            raise unreadable("values", f"{what} is no record, as of Debezium")


@dataclass(slots=True)
class _Names:
    """The named types of a schema, with the namespaces in which they are defined."""

    known: dict[str, tuple[Any, str]] = field(default_factory=dict)

    def collect(self, schema: Any, namespace: str) -> None:
        """Remembers all that is defined in the schema."""
        if isinstance(schema, list):
            for each in schema:
                self.collect(each, namespace)
        elif isinstance(schema, dict):
            if schema.get("type") in _NAMED:
                full = full_name(schema["name"], schema.get("namespace"), namespace)
                self.known[full] = schema, namespace
                namespace = full.rpartition(".")[0]
            inner = [schema.get(part) for part in ("type", "items", "values")]
            for each in (*inner, *(each["type"] for each in schema.get("fields", ()))):
                if not isinstance(each, str):
                    self.collect(each, namespace)

    def whole(self, schema: Any, namespace: str, seen: set[str]) -> Any:
        """The schema by itself: what it names is defined where it is named first."""
        match schema:
            case list():
                return [self.whole(each, namespace, seen) for each in schema]
            case str():
                full = full_name(schema, None, namespace)
                known = full if full in self.known else schema
                if known not in self.known:
                    return schema
                return known if known in seen else self.whole(*self.known[known], seen)
            case {"type": (dict() | list()) as inner}:
                return self.whole(inner, namespace, seen)
            case {"type": kind, "name": str(name)} if kind in _NAMED:
                full = full_name(name, schema.get("namespace"), namespace)
                seen.add(full)
                found = {each: v for each, v in schema.items() if each != "namespace"}
                if "fields" in found:
                    space = full.rpartition(".")[0]
                    found["fields"] = [
                        {**each, "type": self.whole(each["type"], space, seen)}
                        for each in schema["fields"]
                    ]
                return {**found, "name": full}
            case _:
                parts = {
                    part: self.whole(schema[part], namespace, seen)
                    for part in ("items", "values")
                    if part in schema
                }
                return {**schema, **parts}
