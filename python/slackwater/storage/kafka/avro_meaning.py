"""The logical types of two Avro schemas, where one is read as the other.

Avro resolves the types below and lets the reader's logical type stand, so that milliseconds would
count as microseconds.

Source: Avro 1.12's specification; docs/decisions 0071.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_MEANINGS = (
    "date",
    "decimal",
    "time-millis",
    "time-micros",
    "timestamp-millis",
    "timestamp-micros",
    "local-timestamp-millis",
    "local-timestamp-micros",
)


def other_meaning(writer: Any, reader: Any) -> str | None:
    """The first field whose numbers mean something else to the reader; None: there is none.

    A logical type that only one of them has is none of another meaning. The types of unions with
    several are not compared.
    """
    compared = _Comparison()
    _define(_Place(writer), compared.writers)
    _define(_Place(reader), compared.readers)
    return next(compared.differences(_Place(writer), _Place(reader), ""), None)


@dataclass(frozen=True, slots=True)
class _Place:
    """A schema within the namespace in which its names are."""

    schema: Any
    namespace: str = ""

    def within(self, schema: Any) -> _Place:
        """The place of a schema that is a part of this one."""
        return _Place(schema, self.namespace)


@dataclass(slots=True)
class _Comparison:
    """The named types of each side, and the pairs that were compared."""

    writers: dict[str, _Place] = field(default_factory=dict)
    readers: dict[str, _Place] = field(default_factory=dict)
    seen: set[tuple[str, str]] = field(default_factory=set)

    def differences(self, writer: _Place, reader: _Place, path: str) -> Iterator[str]:
        writer, written = _resolved(writer, self.writers)
        reader, read = _resolved(reader, self.readers)
        if not isinstance(writer.schema, dict) or not isinstance(reader.schema, dict):
            return
        if written and read:
            if (written, read) in self.seen:
                return
            self.seen.add((written, read))
        was, now = _meaning(writer.schema), _meaning(reader.schema)
        if was and now and was != now:
            yield f"{path or 'the value'} is a {was}, and not a {now}"
        for part in ("items", "values"):
            if part in writer.schema and part in reader.schema:
                inner = writer.within(writer.schema[part]), reader.within(reader.schema[part])
                yield from self.differences(*inner, path)
        named = {each["name"]: each["type"] for each in writer.schema.get("fields", ())}
        for each in reader.schema.get("fields", ()):
            name = next((n for n in (each["name"], *each.get("aliases", ())) if n in named), None)
            if name is not None:
                inner = writer.within(named.pop(name)), reader.within(each["type"])
                yield from self.differences(*inner, f"{path}.{each['name']}".lstrip("."))


def _resolved(place: _Place, named: dict[str, _Place]) -> tuple[_Place, str]:
    """The schema that a name or a union with null stands for, with its full name if it has one."""
    while True:
        schema = place.schema
        if isinstance(schema, list):
            others = [each for each in schema if each != "null"]
            if len(others) != 1:
                return place, ""
            place = place.within(others[0])
        elif isinstance(schema, str):
            full = full_name(schema, None, place.namespace)
            found = named.get(full) or named.get(schema)
            return (place, "") if found is None else (found, full)
        elif isinstance(schema, dict) and isinstance(schema.get("type"), dict | list):
            place = place.within(schema["type"])
        elif isinstance(schema, dict) and "name" in schema:
            full = full_name(schema["name"], schema.get("namespace"), place.namespace)
            place = _Place(schema, full.rpartition(".")[0])
            named[full] = place
            return place, full
        else:
            return place, ""


def _define(place: _Place, named: dict[str, _Place]) -> None:
    """Remembers the named types in a schema, which may be used before the comparison gets there."""
    schema = place.schema
    if isinstance(schema, list):
        for each in schema:
            _define(place.within(each), named)
    elif isinstance(schema, dict):
        place, _ = _resolved(place, named)
        found = place.schema if isinstance(place.schema, dict) else {}
        parts = [found[part] for part in ("items", "values") if part in found]
        for each in (*parts, *(each["type"] for each in found.get("fields", ()))):
            if not isinstance(each, str):
                _define(place.within(each), named)


def _meaning(schema: Mapping[str, Any]) -> str | None:
    kind = schema.get("logicalType")
    if kind not in _MEANINGS:
        return None
    if kind != "decimal":
        return str(kind)
    return f"decimal with scale {schema.get('scale', 0)}"


def full_name(name: str, given: Any, namespace: str) -> str:
    """The full name of a type of that name and, if one is `given`, namespace."""
    if "." in name:
        return name
    space = given if isinstance(given, str) else namespace
    return f"{space}.{name}" if space else name
