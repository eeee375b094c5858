"""Commands and responses as bytes: JSON with the version of the protocol and the name of the type.

For every command c, and for every response of a replica likewise::

    decode_command(encode_command(c)) == c

Whatever has another version, a type or a field that this version does not know, lacks a field, or
has a value of another type is refused, so that two versions cannot misunderstand each other
silently. Frontiers are lists of their elements, bytes are base64.
"""

from __future__ import annotations

import base64
import json
from typing import Any, get_args, get_origin

from cattrs import Converter
from cattrs.strategies import configure_tagged_union

from slackwater.compute.controller.descriptions import SinkExport
from slackwater.compute.controller.protocol import (
    Command,
    CopyToAnswer,
    PeekAnswer,
    ReplicaResponse,
)
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier

VERSION = 1


class EncodingError(ValueError):
    """The bytes are no message of this version of the protocol."""


def encode_command(command: Command) -> bytes:
    """The command as a replica gets it."""
    return _encode("command", _converter.unstructure(command, unstructure_as=Command))


def decode_command(raw: bytes) -> Command:
    """The command in the bytes. Raises EncodingError."""
    command: Command = _decode("command", raw, Command)
    return command


def encode_response(response: ReplicaResponse) -> bytes:
    """The response as the controller gets it."""
    return _encode("response", _converter.unstructure(response, unstructure_as=ReplicaResponse))


def decode_response(raw: bytes) -> ReplicaResponse:
    """The response in the bytes. Raises EncodingError."""
    response: ReplicaResponse = _decode("response", raw, ReplicaResponse)
    return response


def _encode(kind: str, body: Any) -> bytes:
    return json.dumps({"version": VERSION, kind: body}, separators=(",", ":")).encode()


def _decode(kind: str, raw: bytes, union: Any) -> Any:
    try:
        message = json.loads(raw)
        if not isinstance(message, dict) or message.keys() != {"version", kind}:
            raise EncodingError(f"it is no {kind} with a version")
        if message["version"] != VERSION:
            raise EncodingError(f"its version is {message['version']}, not {VERSION}")
        return _converter.structure(message[kind], union)
    except EncodingError:
        raise
    except KeyError as error:
        raise EncodingError(f"the {kind} lacks, or does not know, {error}") from None
    except Exception as error:
        # Whatever cattrs raises for what does not fit; the bytes come from another process.
        raise EncodingError(f"it is no {kind} of version {VERSION}: {error}") from None


def _exactly(kind: type) -> Any:
    def check(value: Any, _: Any) -> Any:
        if type(value) is not kind:
            raise EncodingError(f"{value!r} is no {kind.__name__}")
        return value

    return check


def _frontier(value: Any, _: Any) -> Frontier:
    if value == []:
        return EMPTY_FRONTIER
    (element,) = value
    return Frontier(_exactly(int)(element, None))


def _bytes(value: Any, _: Any) -> bytes:
    return base64.b64decode(_exactly(str)(value, None), validate=True)


def _is_tuple(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin is tuple


def _tuples(kind: Any, converter: Converter) -> Any:
    """The hook for a kind of tuple, whose JSON is a list and nothing else that has elements."""
    kinds = get_args(kind)
    if kinds[-1] is not Ellipsis:
        return lambda value, _: tuple(
            converter.structure(each, one)
            for each, one in zip(_exactly(list)(value, None), kinds, strict=True)
        )
    element = converter.get_structure_hook(kinds[0])
    return lambda value, _: tuple(element(each, kinds[0]) for each in _exactly(list)(value, None))


def _made() -> Converter:
    converter = Converter(detailed_validation=False, forbid_extra_keys=True)
    for kind in (int, str, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook(Frontier, _frontier)
    converter.register_unstructure_hook(Frontier, Frontier.as_list)
    converter.register_structure_hook(bytes, _bytes)
    converter.register_unstructure_hook(bytes, lambda value: base64.b64encode(value).decode())
    converter.register_structure_hook_factory(_is_tuple, _tuples)
    for union in (SinkExport, PeekAnswer, CopyToAnswer, Command, ReplicaResponse):
        configure_tagged_union(union, converter, tag_name="type")
    return converter


_converter = _made()
