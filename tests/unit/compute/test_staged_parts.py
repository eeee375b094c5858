"""Texts and bytes that go between the leader and a replica."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cattrs.errors import BaseValidationError
from hypothesis import given
from hypothesis import strategies as st

from slackwater.compute.definitions import Definition, PlanVersion, StoredShards
from slackwater.compute.staged_parts import bytes_of, parts_of
from slackwater.persist.parts import FileBody, InlineBody, NewPart, Uniform

numbers = st.integers(0, 2**62)
bodies = st.builds(InlineBody, st.binary(max_size=20)) | st.builds(
    FileBody,
    st.text(max_size=9),
    numbers,
    numbers,
    st.none() | st.builds(Uniform, numbers, st.integers(-3, 3)),
)
parts = st.builds(NewPart, bodies, numbers, numbers, numbers, st.booleans())


@given(st.lists(parts, max_size=4).map(tuple))
def test_parts_are_the_same_behind_their_bytes(parts):
    assert parts_of(bytes_of(parts)) == parts


def test_nothing_takes_no_bytes():
    assert bytes_of(()) == b""
    assert parts_of(b"") == ()


def test_a_definition_is_the_same_behind_its_text():
    functions = ({"name": "f", "body": ["x", 1, None]},)
    made = Definition("SELECT 'ö'", "c", ("a", "b"), functions, 2, PlanVersion(3, "x"))
    assert Definition.read(made.text) == made
    relations = ({"id": "u1", "view": {"namespace": ["a"]}, "schema": {"fields": [1]}},)
    known = replace(made, relations=relations, whole=("u1",))
    assert Definition.read(known.text) == known
    assert Definition.read(Definition("q", "c", ()).text) == Definition("q", "c", ())
    shards = StoredShards("n", 3, '{"type":"struct","fields":[]}', None)
    assert StoredShards.read(shards.text) == shards


def test_a_field_that_is_not_known_is_refused():
    with pytest.raises(BaseValidationError):
        Definition.read('{"query": "q", "catalog": "c", "namespace": [], "new": 1}')
