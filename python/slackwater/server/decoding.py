"""Requests from JSON: each becomes the frozen type of its endpoint, once, before anything runs.

A field that the type does not have is refused, so that a shim and a coordinator of two versions
cannot misunderstand each other silently.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from cattrs import Converter
from cattrs.errors import ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn

from slackwater.adapter import protocol
from slackwater.adapter.catalog.context import Context
from slackwater.adapter.time.selection import AtLeastTimestamp, AtTimestamp
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import JsonType, RelationDesc

Body = Mapping[str, Any]
Request = TypeVar("Request")

_CALLER = frozenset(field.name for field in fields(protocol.Caller))
_STAGED = frozenset({"mode", *(field.name for field in fields(protocol.NewTable))})
_CHANGES: Mapping[str, type[Any]] = {
    "add_column": protocol.AddColumn,
    "set_nullability": protocol.SetNullability,
    "set_column_comment": protocol.SetColumnComment,
    "set_property": protocol.SetProperty,
}


def decoded(kind: type[Request], raw: bytes) -> tuple[protocol.Caller, Request]:
    """The caller and the request in a body of JSON. An empty body counts as an empty object.

    Raises SLACKWATER_INVALID_REQUEST for a body that is no such request.
    """
    try:
        body = json.loads(raw) if raw else {}
    except ValueError as error:
        raise _invalid(kind, str(error)) from None
    if not isinstance(body, dict):
        raise _invalid(kind, "it is no JSON object")
    return decode(kind, body)


def decode(kind: type[Request], body: Body) -> tuple[protocol.Caller, Request]:
    """The caller and the request in `body`.

    Raises SLACKWATER_INVALID_REQUEST for a body that is no such request.
    """
    own = {key: value for key, value in body.items() if key not in _CALLER}
    caller = {key: value for key, value in body.items() if key in _CALLER and value is not None}
    try:
        return _converter.structure(caller, protocol.Caller), _converter.structure(own, kind)
    except ForbiddenExtraKeysError as error:
        unknown = ", ".join(sorted(error.extra_fields))
        raise _invalid(kind, f"it has unknown fields: {unknown}") from None
    except KeyError as error:
        raise _invalid(kind, f"it lacks the field {error.args[0]}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise _invalid(kind, str(error)) from None


def _invalid(kind: type[Any], reason: str) -> SlackwaterError:
    return user_error("SLACKWATER_INVALID_REQUEST", request=kind.__name__, reason=reason)


def _context(given: Body) -> Body:
    """The context without empty names, which stand for no user and for the default schema."""
    said = {key: value for key, value in given.items() if value}
    return {**said, "settings": given.get("settings")}


def _as_of(given: Body | None, _: Any) -> protocol.AsOf | None:
    if given is None:
        return None
    ((how, time),) = given.items()
    match how:
        case "at":
            return AtTimestamp(Timestamp(int(time)))
        case "at_least":
            return AtLeastTimestamp(Timestamp(int(time)))
        case _:
            raise ValueError(f"{how} is no time")


def _columns(given: JsonType, _: Any) -> RelationDesc:
    """The columns of a schema that came as text or as an object."""
    return RelationDesc.from_json(given if isinstance(given, str) else json.dumps(given))


def _change(given: Body, _: Any) -> protocol.TableChange:
    ((kind, value),) = given.items()
    known = _CHANGES.get(kind)
    if known is not None:
        change: protocol.TableChange = _converter.structure(value, known)
        return change
    match kind:
        case "remove_property":
            return protocol.RemoveProperty(str(value))
        case "set_comment":
            return protocol.SetComment(str(value or ""))
        case "other":
            return protocol.UnsupportedChange(kind, str(value))
        case _:
            return protocol.UnsupportedChange(kind)


def _staged(given: Body) -> Body:
    """The fields of the table are beside its mode."""
    table = {key: value for key, value in given.items() if key != "mode"}
    return {**({"mode": given["mode"]} if "mode" in given else {}), "table": table}


def _definition(given: Body) -> Body:
    """Moves the fields of the staged table into `table`; they come beside those of the write."""
    staged = {key: value for key, value in given.items() if key in _STAGED}
    return {**{key: value for key, value in given.items() if key not in staged}, "staged": staged}


def _write(given: Body) -> Body:
    """Moves the rows of the tables into `rows`.

    Without `writes`, the fields of the one table come beside those of the write.
    """
    own = {key: given[key] for key in ("write_id", "hold", "definition") if key in given}
    rest = {key: value for key, value in given.items() if key not in own}
    if "writes" in given:
        return {**own, "rows": rest.pop("writes"), **rest}
    if own.get("definition") is not None:
        # Its target says which table that is, and its mode how the rows come into it.
        rest = {**rest, "table": None, "mode": protocol.WriteMode.APPEND.value}
        rest.pop("shard", None)
    return {**own, "rows": [{**rest, "write_id": given["write_id"]}]}


def _made() -> Converter:
    # A client of ours needs no path to the field that is wrong, which costs half of the time.
    converter = Converter(detailed_validation=False, forbid_extra_keys=True)
    converter.register_structure_hook(protocol.AsOf | None, _as_of)
    converter.register_structure_hook(RelationDesc, _columns)
    converter.register_structure_hook(JsonType, lambda given, _: given)
    converter.register_structure_hook(protocol.TableChange, _change)
    _reshape(converter, Context, _context)
    _reshape(converter, protocol.StageTable, _staged)
    _reshape(converter, protocol.Definition, _definition)
    _reshape(converter, protocol.WriteTables, _write)
    return converter


def _reshape(converter: Converter, kind: type[Any], reshape: Callable[[Body], Body]) -> None:
    """Lets `reshape` change the JSON of `kind` before it is decoded."""
    make = make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True)
    converter.register_structure_hook(kind, lambda given, _: make(reshape(given), kind))


_converter = _made()
