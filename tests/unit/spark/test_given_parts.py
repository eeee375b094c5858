"""Inline parts are given to the driver once, whatever number of views read them."""

from __future__ import annotations

import base64

import pyarrow as pa
import pytest

from slackwater.compute.engine import NamedUpdates
from slackwater.persist.blobs import inline_part
from slackwater.persist.parts import FileBody, InlineBody, NewPart, Part, Uniform
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import RelationDesc
from slackwater.spark.given_parts import GivenParts

DESC = RelationDesc.of(k="long", v="string", w="double")
FILE = FileBody("file:///x", 10, 1, Uniform(Timestamp(5), 1))


def inline(rows=1000):
    schema = DESC.update_schema()
    values = [[pa.scalar(1).cast(field.type).as_py()] * rows for field in schema]
    return inline_part(pa.table(values, schema=schema)).body


BODY = inline()


def part(number, body=BODY):
    at = Timestamp(5)
    return Part(number, 1, at, Timestamp(6), body, 1000, at, at, False)


def updates(*parts, fields=("k",), name="u1"):
    return {name: NamedUpdates(name, DESC, frozenset(fields), parts, Timestamp(5), Timestamp(6))}


def sent(request):
    """For each part its columns, if they were sent."""
    found = []
    for each in request["u1"]["parts"]:
        if "inline" in each:
            with pa.ipc.open_stream(base64.b64decode(each["inline"])) as stream:
                found.append(stream.read_all().column_names[:-2])
        else:
            found.append(None)
    return found


@pytest.fixture
def given():
    made = GivenParts(most=3)
    yield made
    made.validate()


def test_a_part_is_given_once_however_many_views_read_it(given):
    assert sent(given.sources_json(updates(part(1), part(2)))) == [["k"], ["k"]]
    size = given.bytes_given
    for fields in (("k",), ("v",), ("k", "w")):
        assert sent(given.sources_json(updates(part(1), part(2), fields=fields))) == [None, None]
    assert given.bytes_given == size


def test_it_is_given_with_what_anybody_was_seen_to_read(given):
    given.sources_json(updates(part(1), fields=("k",)))
    given.sources_json(updates(part(1), fields=("w",)))
    assert sent(given.sources_json(updates(part(2), fields=("k",)))) == [["k", "w"]]


def test_what_the_driver_asks_for_is_given_again(given):
    given.sources_json(updates(part(1), part(2)))
    answer = given.sources_json(updates(part(1), part(2)), frozenset({2}))
    assert sent(answer) == [None, ["k"]]


def test_only_so_many_are_remembered(given):
    for number in range(1, 5):
        given.sources_json(updates(part(number)))
    assert sent(given.sources_json(updates(part(4), part(1)))) == [None, ["k"]]


def test_what_has_no_id_yet_is_always_given_and_files_go_by_name(given):
    new = NewPart(BODY, 1000, Timestamp(5), Timestamp(5), False)
    for _ in range(2):
        request = given.sources_json(updates(new, part(1, FILE)))
        assert sent(request) == [["k"], None]
        assert request["u1"]["parts"][1]["file"]["uri"] == FILE.uri
    assert isinstance(new.body, InlineBody)
