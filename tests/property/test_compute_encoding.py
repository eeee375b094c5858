"""Commands and responses of the compute protocol survive their encoding, and nothing else does."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories
from tests.support.compute.messages import commands, responses

from slackwater.compute.controller.encoding import (
    VERSION,
    EncodingError,
    decode_command,
    decode_response,
    encode_command,
    encode_response,
)
from slackwater.controller.protocol import Hello

HELLO = {"type": "Hello", "nonce": 3}


@histories()
@given(commands())
def test_a_command_is_the_same_behind_its_encoding(command):
    raw = encode_command(command)
    assert decode_command(raw) == command
    with pytest.raises(EncodingError):
        decode_response(raw)


@histories()
@given(responses)
def test_a_response_is_the_same_behind_its_encoding(response):
    raw = encode_response(response)
    assert decode_response(raw) == response
    with pytest.raises(EncodingError):
        decode_command(raw)


def places(value, path=()):
    """The ways to all objects and lists inside of a message."""
    if isinstance(value, dict | list):
        yield path
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in entries:
            yield from places(inner, (*path, key))


@histories()
@given(commands() | responses, st.data())
def test_a_message_with_more_less_or_other_fields_is_refused(message, data):
    """Whichever object in it has an unknown field, lacks one, or has a value of another type."""
    try:
        raw, decode = encode_command(message), decode_command
        decode(raw)
    except (EncodingError, KeyError, AttributeError, TypeError):
        raw, decode = encode_response(message), decode_response
    body = json.loads(raw)
    objects = [p for p in places(body) if isinstance(inside(body, p), dict)]
    chosen = inside(body, data.draw(st.sampled_from(objects)))
    match data.draw(st.sampled_from(["more", "less", "other"])):
        case "more":
            chosen["unknown"] = None
        case "less":
            del chosen[data.draw(st.sampled_from(sorted(chosen)))]
        case "other":
            key = data.draw(st.sampled_from(sorted(chosen)))
            chosen[key] = {"unknown": 7.5}
    changed = json.dumps(body).encode()
    try:
        decoded = decode(changed)
    except EncodingError:
        return
    # A field with a default may be left out: then it has that.
    encode = encode_command if decode is decode_command else encode_response
    assert decoded == decode(encode(decoded))
    assert "unknown" not in changed.decode()


def inside(value, path):
    for key in path:
        value = value[key]
    return value


@pytest.mark.parametrize(
    "message",
    [
        {"version": VERSION + 1, "command": HELLO},
        {"version": str(VERSION), "command": HELLO},
        {"command": HELLO},
        {"version": VERSION},
        {"version": VERSION, "command": HELLO, "response": HELLO},
        {"version": VERSION, "command": {**HELLO, "nonce": "3"}},
        {"version": VERSION, "command": {**HELLO, "nonce": True}},
        {"version": VERSION, "command": {**HELLO, "type": "Bonjour"}},
        {"version": VERSION, "command": {"nonce": 3}},
        {"version": VERSION, "command": [HELLO]},
        {"version": VERSION, "command": {"type": "AllowCompaction", "id": "u1", "since": [1, 2]}},
        {"version": VERSION, "command": {"type": "AllowCompaction", "id": "u1", "since": [-1]}},
        {"version": VERSION, "command": {"type": "AllowCompaction", "id": 1, "since": [1]}},
        [],
        None,
    ],
)
def test_what_is_no_command_of_this_version_is_refused(message):
    with pytest.raises(EncodingError):
        decode_command(json.dumps(message).encode())


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b'{"version":1,"command":NaN}'])
def test_bytes_that_are_no_json_are_refused(raw):
    with pytest.raises(EncodingError):
        decode_command(raw)


def test_the_encoding_of_this_version_stays_as_it_is():
    assert encode_command(Hello(3)) == b'{"version":1,"command":{"nonce":3,"type":"Hello"}}'
